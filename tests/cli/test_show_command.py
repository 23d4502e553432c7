"""``lazygraph show``, ``bench`` and ``doctor``, as processes and through a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lazygraph as lg
from lazygraph.export.outline import outline_of, outline_of_file
from lazygraph.picture import page
from tests.cli.conftest import Run
from tests.support.checkpoints import random_tensors, small_config, write_folder

TEST_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def _small() -> dict[str, lg.Tensor]:
    x = lg.input("x", lg.float32, ["seq", 64])
    with lg.scope("layers.0"):
        y = x @ x.const(np.ones((64, 8), np.float32), name="w")
    with lg.scope("layers.1"):
        y = lg.relu(y)
    return {"y": y}


def test_costs_of_products_are_those_of_their_loops() -> None:
    outline = outline_of(_small(), sizes={"seq": 16})
    product, relu = outline.calls
    assert outline.flops(product) == 2 * 16 * 64 * 8
    assert outline.moved(product) == 4 * (16 * 64 + 64 * 8 + 16 * 8)
    assert (product.parameters, outline.parameters) == (512, 512)
    assert str(product.cost.flops) == "1024*seq"
    assert (outline.flops(relu), outline.moved(relu)) == (16 * 8, 4 * 2 * 16 * 8)
    assert (product.scope, relu.scope) == (("layers.0",), ("layers.1",))
    assert re.search(r"test_show_command\.py:\d+$", product.line)


def test_cost_of_a_convolution() -> None:
    x = lg.input("x", lg.float32, [1, 3, 8, 8])
    y = lg.op.Conv(x, x.const(np.ones((5, 3, 3, 3), np.float32)))
    outline = outline_of(y)
    assert outline.flops(outline.calls[0]) == 2 * 5 * 6 * 6 * 3 * 3 * 3


def test_a_slot_in_place_costs_its_new_rows_only(exported: Path) -> None:
    outline = outline_of_file(exported)
    written = [call for call in outline.calls if call.op == "ScatterND"]
    assert written
    for call in written:
        rows = outline.manifest.memory[0] if outline.manifest else None
        assert rows is not None
        assert outline.moved(call) == 2 * rows.bytes_per_row + 8


def test_a_size_that_the_graph_has_not_is_refused() -> None:
    with pytest.raises(lg.OperandError, match="no size is called 'batch'") as caught:
        outline_of(_small(), sizes={"batch": 2})
    assert "one of seq" in str(caught.value)


def test_every_model_that_onnx_ships_is_shown() -> None:
    files = sorted(TEST_DATA.rglob("*.onnx"))
    assert len(files) > 100
    for file in files:
        outline = outline_of_file(file)
        assert f"<title>{outline.title}</title>" in page(outline)


def test_a_page_asks_for_nothing_from_elsewhere(exported: Path) -> None:
    text = page(outline_of_file(exported))
    assert "default-src 'none'" in text
    assert not re.search(r"https?://", text)
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:,)", text)


def test_names_cannot_break_out_of_the_page() -> None:
    x = lg.input("</script><b>", lg.float32, ["n"])
    text = page(outline_of({"<i>": lg.relu(x)}, title="<u>"))
    assert text.count("</script>") == 2
    assert "<i>" not in text.split('id="model"')[0].replace("<i style", "")
    assert "<u>" not in text


def test_a_loaded_model_shows_itself_in_a_notebook() -> None:
    loaded = lg.load(lg.to_onnx(_small()))
    text = loaded._repr_html_()
    assert text.startswith("<table><caption>a model in memory: 1 weights</caption>")
    assert "<tr><td>input</td><td>x</td><td><code>float32 (seq, 64)</code></td></tr>" in text
    assert "<td>output</td><td>y</td>" in text


def test_show_prints_a_tree(lazygraph: Run, exported: Path) -> None:
    done = lazygraph("show", exported)
    assert (done.returncode, done.stderr) == (0, "")
    assert "layers.0" in done.stdout
    assert "per token" in done.stdout


def test_show_as_json_and_as_a_page(lazygraph: Run, tmp_path: Path) -> None:
    lg.save(_small(), tmp_path / "m.onnx")
    done = lazygraph("show", "m.onnx", "--json", "--size", "seq=4")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["parameters"], found["sizes"], len(found["calls"])) == (512, {"seq": 4}, 2)
    done = lazygraph("show", "m.onnx", "--html", "r.html")
    assert (done.returncode, done.stdout) == (0, "r.html\n")
    assert "MatMul" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_what_cannot_be_read_ends_with_2(lazygraph: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    for name in ("broken.onnx", "nowhere.onnx"):
        done = lazygraph("show", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert name in done.stderr
    lg.save(_small(), tmp_path / "m.onnx")
    assert lazygraph("show", "m.onnx", "--size", "batch=2").returncode == 2
    assert lazygraph("show", "m.onnx", "--size", "seq").returncode == 2


def test_measuring_what_is_no_decoder_is_refused(lazygraph: Run, tmp_path: Path) -> None:
    lg.save(_small(), tmp_path / "m.onnx")
    done = lazygraph("show", "m.onnx", "--html", "r.html", "--measure")
    assert done.returncode == 1
    assert "is no export folder" in done.stderr
    assert not (tmp_path / "r.html").exists()


def test_bench_of_a_file_and_of_two(lazygraph: Run, tmp_path: Path) -> None:
    lg.save(_small(), tmp_path / "m.onnx")
    done = lazygraph("bench", "m.onnx", "m.onnx", "--size", "seq=4", "--repeats", 3, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["ratios"]) == 1
    point = found["models"]["m.onnx"][0]
    assert point["low"] <= point["seconds"] <= point["high"]


def test_bench_of_a_decoder(lazygraph: Run, exported: Path) -> None:
    done = lazygraph("bench", exported, "--lengths", "4,16", "--repeats", 2)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[:2] for line in done.stdout.splitlines()]
    assert lines == [["prefill", "4"], ["prefill", "16"], ["decode", "4"], ["decode", "16"]]
    done = lazygraph("bench", exported, "--lengths", "90000")
    assert done.returncode == 2
    assert "room for 20,000" in done.stderr


def test_doctor_says_what_runs(lazygraph: Run) -> None:
    done = lazygraph("doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["providers"]["cpu"] == "runs"
    assert found["packages"]["numpy"] == np.__version__
    assert "cpu provider" in lazygraph("doctor").stdout


def test_doctor_finds_two_runtimes_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygraph import command_doctor as doctor

    class Found:
        def __init__(self, name: str) -> None:
            self.metadata = {"Name": name}

    monkeypatch.setattr(doctor, "distributions", lambda: [Found("onnxruntime"), Found("onnxruntime-gpu")])
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "gguf" else "1")
    advice = doctor.examine()["advice"]
    assert [entry["command"] for entry in advice][:2] == [
        "pip install gguf",
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_of_sixty_layers_in_a_browser(tmp_path: Path, width: int) -> None:
    """Draws the tree, unfolds it, runs no error, and is no wider than the window (a frame of that width)."""
    config = small_config(num_hidden_layers=60)
    write_folder(tmp_path / "model", config, random_tensors(config))
    lg.convert(tmp_path / "model", tmp_path / "out", max_seq_len=64)
    probe = (
        "<script>addEventListener('load',()=>{const f=[];addEventListener('error',e=>f.push(e.message));"
        "const rows=[...document.querySelectorAll('.row')];const n=rows.length;rows[5].click();"
        "document.querySelector('[value=\"1\"]').click();"
        "const d=document.documentElement;d.dataset.probe=[n,document.querySelectorAll('.row').length,"
        "d.scrollWidth,innerWidth,f.length].join(' ')});</script>"
    )
    text = page(outline_of_file(tmp_path / "out"))
    assert len(text) < 2_000_000
    (tmp_path / "inner.html").write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    frame = f'<iframe src="inner.html" style="border:0;width:{width}px;height:800px"></iframe>'
    take = (
        "<script>addEventListener('load',()=>setTimeout(()=>{document.title="
        "document.querySelector('iframe').contentDocument.documentElement.dataset.probe},100))</script>"
    )
    (tmp_path / "outer.html").write_text(f"<!doctype html>{frame}{take}", encoding="utf-8")
    done = subprocess.run(
        [
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,1000",
            "--virtual-time-budget=4000",
            "--enable-logging=stderr",
            "--dump-dom",
            (tmp_path / "outer.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=110,
    )
    found = re.search(r"<title>(.*?)</title>", done.stdout)
    assert found, done.stdout[-500:]
    rows, unfolded, scroll, inner, errors = map(int, found[1].split())
    assert 60 < rows < 100
    assert unfolded > rows
    assert scroll <= inner == width
    assert errors == 0
    assert "CONSOLE" not in done.stderr, done.stderr
