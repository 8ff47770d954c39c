import pytest

from protocol import Tier, tier_of


@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        (None, Tier.GPU),
        ("GPU", Tier.GPU),
        ("gpu", Tier.GPU),
        ("CPU", Tier.HOST),
        ("CPU_PINNED", Tier.HOST),
        ("cpu_tier1", Tier.HOST),
        ("CPU_TIER2", Tier.HOST),
        ("DISK", Tier.STORAGE),
        ("FS", Tier.STORAGE),
        ("OBJ", Tier.STORAGE),
        ("STORAGE", Tier.STORAGE),
        ("External", Tier.STORAGE),
        ("", None),
        ("HBM3", None),
        ("GPU ", None),
    ],
)
def test_medium_maps_to_tier(medium: str | None, tier: Tier | None) -> None:
    assert tier_of(medium) is tier


def test_tiers_are_ordered_by_speed() -> None:
    assert sorted(Tier) == [Tier.GPU, Tier.HOST, Tier.STORAGE]
