"""Published logs and samples of real machines, if they are beside the repository: no line lost, nearly all understood."""

from __future__ import annotations

import pytest
import whole_files

from parsers.documents import REGISTRY
from tests.line_parser import line_parser

here = pytest.mark.skipif(not whole_files.FOLDER.exists(), reason="../shared/data/raw is not here")
RECOGNISED = (
    "slurm/liciascl/slurmctld.log", "slurm/liciascl/slurmctld_01.log", "slurm/liciascl/slurm_jobcomp.log", "loghub/HPC_2k.log",
    "loghub/Linux_2k.log", "loghub/Thunderbird_2k.log", "kernel/gpud/pkg__pstore__testdata__7530486857247__dmesg.txt",
    "kernel/gpud/components__accelerator__nvidia__fabric-manager__testdata__fabricmanager.log",
)  # fmt: skip


@here
@pytest.mark.parametrize("name", RECOGNISED)
def test_no_line_is_lost_and_nearly_all_are_understood(name: str) -> None:
    one = whole_files.read_file(whole_files.FOLDER / name, whole_files.FOLDER, line_parser())
    assert one.rows == one.lines and one.kept
    assert one.unread / one.rows < 0.01


@here
@pytest.mark.parametrize(
    "folder", ["telemetry/sysfs_ib_gpud", "slurm_rest", "telemetry/nvidia_smi_xml", "telemetry/dcgm"]
)
def test_every_sample_is_a_document_that_reads(folder: str) -> None:
    parser = line_parser()
    found = [
        whole_files.read_file(path, whole_files.FOLDER, parser)
        for path in (whole_files.FOLDER / folder).rglob("*")
        if path.is_file()
    ]
    assert found and not [one for one in found if one.kind not in REGISTRY or one.unread]
    assert sum(one.samples for one in found) > 0
