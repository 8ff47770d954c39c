"""What the key of a request changes in it before it goes on: credentials, the cache's salt, who is told the score."""

from prompt import Api
from router.client_keys import CREDENTIALS, ClientKey
from router.errors import ErrorKind, FrontDoorError
from router.forward import Forward
from router.prompt_reader import ReadRequest
from router.tenant_salt import FIELD, TenantSalt, UnsaltableError

# Of SGLang's requests, each a name or a list of such beside a batch; elsewhere an adapter is named as a model.
_ADAPTERS = frozenset({"lora_path", "lora_name", "lora_id"})


def keyed(forward: Forward, read: ReadRequest, key: ClientKey) -> Forward:
    """The request as it goes on for this key.

    Raises:
        FrontDoorError: the key may not use the model, or what its rights rest on cannot be read.
    """
    if key.models is not None and forward.body:
        _check_model(read, key)
    headers = forward.headers
    if not key.is_forwarded:
        headers = [field for field in headers if field[0] not in CREDENTIALS]
        if key.worker_field is not None:
            headers.append(key.worker_field)
    plan = forward.plan._replace(client=key.name)
    return forward._replace(
        plan=plan, headers=headers, shows_score=key.sees_scores, priority=key.priority
    )


def _check_model(read: ReadRequest, key: ClientKey) -> None:
    assert key.models is not None, "asked where there are some"
    if read.view is None:
        raise key.forbidden("the model cannot be read in this body, and this key may not use all")
    if read.view.model is None:
        raise key.forbidden("the request names no model, and this key may not use all", "model")
    if read.view.model not in key.models:
        raise key.forbidden(f"this key may not use the model {read.view.model!r}", "model")
    for field in _ADAPTERS & read.view.body.keys():
        given = read.view.body[field]
        for adapter in given if isinstance(given, list) else [given]:
            if adapter and not (isinstance(adapter, str) and adapter in key.models):
                raise key.forbidden(f"this key may not use the adapter {adapter!r}", field)


def salted(forward: Forward, read: ReadRequest, salt: TenantSalt) -> Forward:
    """The request in the cache of a key. O(body). On paths that are not routed only a salt of the client's is replaced:
    what they make of a further field is not known.

    Raises:
        FrontDoorError: the body is of a form into which no salt can be put.
    """
    is_routed = forward.plan.api != Api.OTHER
    view = read.view
    if view is None:
        if is_routed:
            message = "a body that is compressed cannot be given the cache salt of this key"
            raise FrontDoorError(ErrorKind.MALFORMED, message)
        return forward
    if not is_routed and FIELD not in view.body:
        return forward
    try:
        body = salt.applied(forward.body, view.body)
    except UnsaltableError as error:
        message = f"the body cannot be given the cache salt of this key: {error}"
        raise FrontDoorError(ErrorKind.MALFORMED, message) from error
    plan = forward.plan._replace(cache_salt=salt.of(view.cache_salt))
    return forward._replace(body=body, plan=plan)
