"""Keys with rights to some models, and requests that name theirs in a form."""

from router.client_keys import ClientKeys
from tests.router.front_door import ask, front_door
from tests.router.stub_worker import stub_worker
from tests.router.test_client_keys import entry
from tests.router.test_key_gate import bearer
from tests.router.wire import OK


async def test_rights_to_models_hold_for_forms_too() -> None:
    keys = ClientKeys([entry(models=("m",))])
    ours = [bearer("a"), ("Content-Type", "multipart/form-data; boundary=b")]
    field = '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n{}\r\n'
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        for models, status in ((["m"], 200), (["n"], 403), (["m", "n"], 403), ([], 403)):
            body = "".join(map(field.format, models)) + "--b--\r\n"
            answer = await ask(door, "POST", "/v1/audio/translations", ours, body.encode())
            assert answer.status == status, models
        assert len(worker.requests) == 1


async def test_a_form_of_two_types_names_no_model() -> None:
    """Which of the boundaries an engine goes by is its own business."""
    keys = ClientKeys([entry(models=("m",))])
    types = [("Content-Type", f"multipart/form-data; boundary={one}") for one in "bc"]
    field = '--{}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{}\r\n--{}--\r\n'
    body = field.format("b", "m", "b") + field.format("c", "n", "c")
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        for sent in (types, types[::-1]):
            ours = [bearer("a"), *sent]
            answer = await ask(door, "POST", "/v1/audio/translations", ours, body.encode())
            assert answer.status == 403
    assert not worker.requests
