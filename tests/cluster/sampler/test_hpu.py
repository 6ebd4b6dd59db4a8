"""Readings of Gaudi accelerators from hl-smi's text, and hl-smi beside the samples. Nothing here has been seen on a Gaudi."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cluster.devices import _hpu_tools
from cluster.devices._hpu_tools import ToolError
from cluster.sampler.hpu import COLUMNS, EVERY_S, STALE_S, HpuSource, devices

# In the form of the System Management Interface Tool's guide, Gaudi software 1.24
FIRST = "0, 3, 01P0-A, 1.24.1-1a2b3c4, 1650 MHz, 411 W, 52 C, 7, 0\n1, 1, 01P0-B, 1.24.1-1a2b3c4, 1600 MHz, 395 W, 50 C, 0, 0\n"
SECOND = FIRST.replace("52 C, 7, 0", "53 C, 9, 1").replace("1650", "1500")


def rows(text: str) -> list[dict[str, str | None]]:
    return _hpu_tools.parse(text, COLUMNS)


def test_a_reading() -> None:
    first, second = devices(rows(SECOND), rows(FIRST))
    assert first == {
        "index": 0,
        "uuid": "01P0-A",
        "sm_mhz": 1500.0,
        "memory_mhz": None,
        "power_w": 411.0,
        "temperature_c": 53.0,
        "capped_by": ["power", "thermal"],
        "others": None,
    }
    assert (second["capped_by"], second["sm_mhz"]) == ([], 1600.0)


def test_violations_need_a_reading_before() -> None:
    assert [one["capped_by"] for one in devices(rows(FIRST), [])] == [None, None]
    assert devices(rows(FIRST.replace(", 7, 0", ", N/A, N/A")), rows(FIRST))[0]["capped_by"] is None


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "hl-smi"
    path.write_text(f"#!{sys.executable}\nimport sys, time\nfrom pathlib import Path\nhere = Path({str(folder)!r})\n{script}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_hl_smi_runs_beside_the_samples_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, "print((here / 'text').read_text(), end='')")
    (tmp_path / "text").write_text(FIRST)
    clock = Clock()
    source = HpuSource(1, clock)
    (tmp_path / "text").write_text(SECOND)
    clock.now = EVERY_S - 0.01
    assert source.read()[0]["sm_mhz"] == 1650 and source._process is None
    clock.now = EVERY_S
    assert source.read()[0]["sm_mhz"] == 1650, "it is only started"
    assert source._process is not None
    source._process.wait()
    (reading,) = source.read()
    assert (reading["sm_mhz"], reading["capped_by"]) == (1500, ["power", "thermal"])
    source.close()


def test_the_visible_modules_are_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, f"print({FIRST!r}, end='')")
    assert [one["uuid"] for one in HpuSource(2).read()] == ["01P0-A", "01P0-B"]
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1,3")
    assert [one["uuid"] for one in HpuSource(1).read()] == ["01P0-B"]
    assert not HpuSource(1).emulated


def test_an_older_hl_smi_gives_less_and_an_emulated_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(
        tmp_path, monkeypatch, "sys.exit('no such field') if 'stats' in sys.argv[2] else print('0, 0, U, 1.24.1-emulated, 1650 MHz, 90 W')"
    )
    source = HpuSource(1)
    (reading,) = source.read()
    assert (reading["sm_mhz"], reading["power_w"], reading["temperature_c"], reading["capped_by"]) == (1650, 90, None, None)
    assert source.emulated
    assert sorted(source.missing()) == ["devices.stats.violation.power", "devices.stats.violation.thermal", "devices.temperature.aip"]


def test_a_run_that_fails_or_takes_too_long_is_an_error_and_the_next_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(
        tmp_path,
        monkeypatch,
        f"mode = (here / 'mode').read_text()\nif mode == 'hang': time.sleep(600)\n"
        f"sys.exit('driver lost') if mode == 'fail' else print({FIRST!r}, end='')",
    )
    (tmp_path / "mode").write_text("ok")
    clock = Clock()
    source = HpuSource(1, clock)
    (tmp_path / "mode").write_text("fail")
    clock.now = EVERY_S
    source.read()
    assert source._process is not None
    source._process.wait()
    with pytest.raises(ToolError, match="driver lost"):
        source.read()
    (tmp_path / "mode").write_text("hang")
    clock.now = 2 * EVERY_S
    source.read()
    hanging = source._process
    assert hanging is not None
    clock.now = 2 * EVERY_S + STALE_S + 0.1
    with pytest.raises(ToolError, match="within 5 s"):
        source.read()
    assert hanging.poll() == -9, "it was ended"
    source.close()


def test_without_hl_smi_there_is_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="not on this machine"):
        HpuSource(1)
