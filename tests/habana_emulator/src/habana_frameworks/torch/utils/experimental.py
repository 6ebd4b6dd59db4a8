"""What optimum-habana asks about the device."""

import enum


class synDeviceType(enum.IntEnum):
    synDeviceGaudi = 0
    synDeviceGaudi2 = 4
    synDeviceGaudi3 = 5


def _get_device_type() -> synDeviceType:
    return synDeviceType.synDeviceGaudi2


from .. import hpu  # noqa: E402, F401
