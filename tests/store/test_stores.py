"""Results folders in an object store: a server that speaks S3, run here, and several
processes that talk to it.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import jax
import numpy as np
import pytest
from cases import words_of
from fsspec.registry import _registry
from moto.moto_server import threaded_moto_server as server
from test_cli import run
from upath import UPath

import vmapseeds as vs
from experiments.reliability import kills
from vmapseeds.errors import Failure
from vmapseeds.store import claims, files, folders, layout
from vmapseeds.store.checkpoints import Checkpoints
from vmapseeds.store.claims import Claims, claimed
from vmapseeds.store.files import as_folder
from vmapseeds.store.results import Results

LINEAR = vs.recipe("digits_cnn", epochs=1, model="linear")
RUNS = 12
HOW = dict(seed_batch=4, lane_width=1, lowering="sequential", progress=False)


def train(out, n=RUNS, recipe=LINEAR, **options):
  return vs.train(recipe, vs.Runs.independent(n), out, **{**HOW, **options})


class Store:
  """The server, what it was asked, and whether it refuses everything."""

  def __init__(self):
    self.requests, self.refuses, self._folders = [], False, 0
    # Moto looks whether an object is there and writes it in two steps; a store does
    # both in one.
    lock, answer = (
      threading.Lock(),
      server.DomainDispatcherApplication(server.create_backend_app),
    )

    def application(environment, start):
      with lock:
        self.requests.append(
          (
            environment["REQUEST_METHOD"],
            environment["PATH_INFO"],
            environment["QUERY_STRING"],
          )
        )
        if self.refuses:
          start("403 Forbidden", [("Content-Type", "application/xml")])
          body = (
            b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
          )
          return [body] * (environment["REQUEST_METHOD"] != "HEAD")
        return answer(environment, start)

    class Quiet(server.MotoRequestHandler):
      def log(self, *_):
        pass

    self.server = server.make_server(
      "127.0.0.1", 0, application, True, request_handler=Quiet
    )
    self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
    threading.Thread(target=self.server.serve_forever, daemon=True).start()

  def folder(self) -> str:
    self._folders += 1
    return f"s3://bucket/campaigns/{self._folders}/r"

  @contextlib.contextmanager
  def refusing(self):
    self.refuses = True
    try:
      yield
    finally:
      self.refuses = False


@pytest.fixture(scope="module")
def store():
  with pytest.MonkeyPatch.context() as patch:
    started = Store()
    for name, value in environment(started.endpoint).items():
      patch.setenv(name, value)
    forget()
    fsspec.filesystem("s3").mkdir("bucket")
    yield started
    forget()
    started.server.shutdown()
    started.server.server_close()


def environment(endpoint):
  return {
    "AWS_ENDPOINT_URL": endpoint,
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
  }


def forget():
  """Clears what fsspec caches for an endpoint."""
  fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
  """12 runs in 3 blocks, on the disk."""
  train(tmp_path_factory.mktemp("stores") / "r")
  return tmp_path_factory.getbasetemp() / "stores0" / "r"


@pytest.fixture(scope="module")
def campaign(store):
  """The URL of the same 12 runs, written with few requests. A test that damages it must
  repair it.
  """
  url, counts, write = store.folder(), [], Results.write_block

  def counted(*args):
    begun = len(store.requests)
    write(*args)
    counts.append(len(store.requests) - begun)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Results, "write_block", counted)
    train(url)
  # For each block: look for the record, write predictions, votes and the record.
  assert counts == [4] * 3
  return url


def same(folder, reference, runs=RUNS):
  """All objects but the records, which say when and how long, are the same bytes."""
  there, wanted = (
    sorted(files.list_file_names(as_folder(f))) for f in (folder, reference)
  )
  assert there == wanted
  for counts in zip(
    *(vs.tally(f).to_arrays().values() for f in (folder, reference)), strict=True
  ):
    np.testing.assert_array_equal(*counts)
  objects = [file for file in wanted if not re.fullmatch(r"blocks/\d+\.json", file)]
  assert all(
    files.read(as_folder(folder) / file) == files.read(reference / file)
    for file in objects
  )
  assert vs.verify(folder) == (runs, runs, [], [], [])


def process(store, *args):
  """A process of `worker`, forked from one that has imported everything and not yet
  started JAX.
  """
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload(["vmapseeds.campaign.running", "vmapseeds.cli"])
  started = context.Process(target=worker, args=(environment(store.endpoint), *args))
  started.start()
  return started


def worker(environment, url, log, killed=None, options=None):
  """Trains, writes down which rows, and kills itself before the folder's root, or the
  second record, is put.
  """
  os.environ.update(environment)
  put, record = files.replace, layout.write_record
  count = 0

  def replaces(path, text):
    if killed == "at the root" and path.name == "zarr.json":
      os.kill(os.getpid(), signal.SIGKILL)
    return put(path, text)

  def records(*args):
    nonlocal count
    count += 1
    if killed == "before a record" and count == 2:
      os.kill(os.getpid(), signal.SIGKILL)
    record(*args)

  folders.replace, layout.write_record = replaces, records
  write = Results.write_block

  def logged(self, block, *rest):
    with open(log, "a") as file:
      file.write(f"{[*self.blocks[block]]}\n")
    write(self, block, *rest)

  Results.write_block = logged
  train(url, **(options or {}))


@pytest.fixture
def trained(monkeypatch):
  """The rows that are trained here, in their order."""
  rows, write = [], Results.write_block
  monkeypatch.setattr(
    Results,
    "write_block",
    lambda self, b, *rest: (rows.extend(self.blocks[b]), write(self, b, *rest)),
  )
  return rows


# Campaigns


@pytest.mark.parametrize(
  "where", [pytest.param("s3", marks=pytest.mark.slow), "memory"]
)
@pytest.mark.slow
def test_a_campaign_is_the_same_bytes_as_on_a_disk(where, store, reference, trained):
  url = store.folder() if where == "s3" else "memory://campaigns/r"
  train(url, 6)
  assert trained == list(range(6))
  train(url)
  assert trained == list(range(RUNS))
  assert vs.verify(url) == (RUNS, RUNS, [], [], [])
  whole = vs.open_results(url)
  for name in whole.drop_dims(("block", "place")):
    np.testing.assert_array_equal(whole[name], vs.open_results(reference)[name])
  train(f"{url}2")
  same(f"{url}2", reference)
  assert not os.path.exists(f"{where}:")


@pytest.mark.parametrize(
  "where", [pytest.param("s3", marks=pytest.mark.slow), "memory"]
)
@pytest.mark.slow
def test_every_command(where, store, reference, capsys):
  url = store.folder() if where == "s3" else "memory://commands/r"
  train(url)
  assert run(capsys, "verify", url)[:2] == (
    0,
    f"sound: 12 of 12 runs are done in {url}\n",
  )
  assert run(capsys, "replay", url, "--run", 7)[0] == 0
  status, out, err = run(capsys, "work", url)
  assert (status, out.startswith(f"12 runs in {url}, mean accuracy")) == (0, True)
  status, out, err = run(capsys, "compare", url, reference)
  assert status == 0
  assert "B minus A is 0.0 points (95 % interval 0.0 to 0.0)" in out
  status, out, err = run(capsys, "report", url)
  assert (status, f"{url}/report/report.html\n" in out) == (0, True)
  assert b"data:image/svg+xml" in files.read(as_folder(url) / "report" / "report.html")
  assert {"report/report.json", "report/split.svg"} < files.list_file_names(
    as_folder(url)
  )


@pytest.mark.slow
def test_requests_of_a_block_and_of_a_resume(store):
  """As docs/reliability.md counts them, where no progress is shown."""
  url = store.folder()
  train(url)
  first = url.removeprefix("s3:/") + "/blocks/1.claim"
  mine = [k for k, (_, path, _) in enumerate(store.requests) if path == first]
  methods = [method for method, _, _ in store.requests[mine[0] : mine[-1] + 1]]
  # The claim; two looks for the record, and two for a checkpoint; two arrays and the
  # record; the claim is removed. While no run is done, the description is read before and
  # after.
  others = [method for method in methods if method != "GET"]
  assert others == ["PUT", "HEAD", *["PUT"] * 3, "DELETE"]
  assert methods.count("GET") in (3, 4, 5)
  resumed = []
  for runs in (RUNS, 10 * RUNS):
    train(url, runs)
    begun = len(store.requests)
    train(url, runs)
    resumed.append(len(store.requests) - begun)
  assert resumed[0] == resumed[1] < 60


@pytest.mark.slow
def test_predictions_are_asked_for_when_they_are_read(store, campaign, reference):
  begun = len(store.requests)
  opened = vs.open_results(campaign)
  assert len(store.requests) - begun <= 8
  block = opened.predictions[5].values
  asked = [path for _, path, _ in store.requests[begun:] if "/predictions/c/" in path]
  assert asked == ["/" + campaign.removeprefix("s3://") + "/test/predictions/c/1/0"]
  np.testing.assert_array_equal(block, vs.open_results(reference).predictions[5])


def test_imported_runs(store, capsys, tmp_path):
  url, rng = store.folder(), np.random.default_rng(0)
  predictions, labels = rng.integers(0, 3, (6, 40)), rng.integers(0, 3, 40)
  imported = vs.import_runs(
    url, predictions=predictions, labels=labels, block_runs=4, progress=False
  )
  np.testing.assert_array_equal(imported.predictions, predictions)
  assert vs.verify(url) == (6, 6, [], [], [])
  with pytest.raises(vs.UserError, match="has these predictions already, from run 0"):
    vs.import_runs(url, predictions=predictions, labels=labels, progress=False)
  with pytest.raises(vs.UserError, match="holds imported runs"):
    train(url)


@pytest.mark.slow
def test_until_goes_on_behind_a_url(store, capsys):
  url = store.folder()
  argv = [
    *words_of("train digits_cnn --set epochs=1 model=linear --runs"),
    4,
    "--most-runs",
    8,
    "--out",
    url,
  ]
  status, out, err = run(
    capsys, *argv, "--until", "mean_accuracy abs 0.0001%", "--seed-batch", 4, "--quiet"
  )
  assert (status, err) == (0, "")
  assert out.startswith(f"8 runs in {url}, ")


# Several processes, and their ends


@pytest.mark.slow
def test_two_processes_at_once_train_every_run_once(store, reference, tmp_path):
  url, log = store.folder(), tmp_path / "log"
  both = [process(store, url, str(log)) for _ in range(2)]
  for one in both:
    one.join()
  assert [one.exitcode for one in both] == [0, 0]
  assert sorted(kills.trained_rows(log)) == list(range(RUNS))
  same(url, reference)


@pytest.mark.parametrize(
  ("instant", "done"),
  [
    pytest.param("at the root", 0, marks=pytest.mark.slow),
    pytest.param("before a record", 4, marks=pytest.mark.slow),
  ],
)
def test_a_killed_process_is_gone_on_from(
  instant, done, store, reference, trained, tmp_path, capsys
):
  url = store.folder()
  # The killed process leaves half a folder of another campaign. Arrays that only that
  # one has must go.
  options = {"logits": True, "seed_batch": 3} if instant == "at the root" else {}
  one = process(store, url, str(tmp_path / "log"), instant, options)
  one.join()
  assert one.exitcode == -signal.SIGKILL
  assert any(name.endswith(".claim") for name in files.list_file_names(as_folder(url)))
  if instant == "at the root":
    assert "test/logits/c" not in files.list_file_names(as_folder(url))
    assert "is not a results folder" in run(capsys, "verify", url, "--repair")[2]
  else:
    assert vs.verify(url).problems == []
  train(url)
  assert trained == list(range(done, RUNS))
  same(url, reference)


def test_of_many_one_creates(store):
  path = as_folder(store.folder())
  with ThreadPoolExecutor(16) as pool:
    for name in range(4):
      made = list(
        pool.map(lambda i, name=name: files.create(path / f"{name}", f"{i}"), range(16))
      )
      assert sum(made) == 1
      assert files.read(path / f"{name}") == str(made.index(True)).encode()
  assert files.create(path / "0", files.read(path / "0").decode()), (
    "a request that was sent twice is ours"
  )


@pytest.mark.slow
def test_claims_are_renewed_while_they_are_ours(store, monkeypatch):
  """A claim is taken away just after a renewal: on an object store, one that goes
  during a renewal comes back.
  """
  url = store.folder()
  claim = as_folder(url) / "blocks" / "0.claim"
  monkeypatch.setattr(
    claims, "LEASE", 12
  )  # renewed every 1.2 seconds: times of S3 are whole seconds
  with Claims(url) as other:
    with Claims(url) as mine:
      assert mine.take(0)
      made = claim.fs.modified(claim.path)
      assert within(20, lambda: claim.fs.modified(claim.path) > made)
      assert not other.take(0)
      files.remove(as_folder(url) / "blocks/0.claim")
      assert not mine.holds(0)
      time.sleep(2)
      assert claimed(url) == {}, "one that was taken away is not renewed"
      assert other.take(0)
    assert other.holds(0), "what another holds is not given back"
  assert claimed(url) == {}


def within(seconds, condition):
  """Whether a condition comes true in this time."""
  end = time.monotonic() + seconds
  while not condition() and time.monotonic() < end:
    time.sleep(0.1)
  return condition()


@pytest.mark.parametrize("where", ["s3", "memory"])
def test_claims_of_other_machines_run_out(where, store, monkeypatch):
  url = store.folder() if where == "s3" else "memory://claims/r"
  seconds = [0.0]
  monkeypatch.setattr(claims.time, "monotonic", lambda: seconds[0])
  text = '{"host": "elsewhere", "pid": 1, "started": null, "token": "theirs"}'
  with Claims(url) as mine:
    files.create(as_folder(url) / "blocks" / "3.claim", text)
    assert mine.look() == (set(), {"3": None})
    assert not mine.take(3)
    seconds[0] += claims.LEASE - 1
    assert mine.look() == (set(), {"3": None})
    assert not mine.take(3)
    seconds[0] += 1
    assert mine.look() == (set(), {"3": False})
    assert mine.take(3)
    assert files.list_file_names(as_folder(url)) == {"blocks/3.claim"}
  assert files.list_file_names(as_folder(url)) == set()


# Checkpoints


@pytest.mark.parametrize(
  "where", [pytest.param("s3", marks=pytest.mark.slow), "memory"]
)
@pytest.mark.slow
def test_checkpoints_behind_a_url(where, store, tmp_path, monkeypatch, capsys):
  url = store.folder() if where == "s3" else "memory://checkpoints/r"
  options = {"recipe": LINEAR.replace(epochs=6), "keep_params": True}
  whole = train(tmp_path / "r", 4, **options).load()
  save, saved = Checkpoints.save, []

  def interrupted(self, rounds, state):
    save(self, rounds, state)
    saved.append(rounds)
    if rounds == 4 and len(saved) == 2:
      raise KeyboardInterrupt

  monkeypatch.setattr(Checkpoints, "save", interrupted)
  with pytest.raises(KeyboardInterrupt):
    train(url, 4, checkpoint_every=2, **options)
  capsys.readouterr()  # of the interrupt
  path = as_folder(url) / "checkpoints"
  assert {name.split("/")[1] for name in files.list_file_names(path)} == {"4", "4.json"}
  resumed = train(url, 4, checkpoint_every=1, **options)
  assert saved == [2, 4, 5]
  assert files.list_file_names(path) == set()
  for name in whole:
    np.testing.assert_array_equal(resumed[name], whole[name])
  here, there = (
    vs.load_networks(folder, [3, 0]).variables for folder in (tmp_path / "r", url)
  )
  jax.tree.map(np.testing.assert_array_equal, here, there)
  assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_torn_checkpoint_is_not_used(tmp_path, monkeypatch, capsys):
  url = "memory://torn/r"
  train(url, 4)
  assert vs.verify(url, repair=True).problems == []
  path = as_folder(url)
  files.remove(path / "test/predictions/c/0/0")
  vs.verify(url, repair=True)
  (path / "checkpoints").fs.pipe_file((path / "checkpoints/0/1.json").path, b"torn")
  vs.work(url, checkpoint_every=1, progress=False)
  assert capsys.readouterr().err == "the checkpoint 0/1 is ignored: it cannot be read\n"
  assert not [name for name in files.list_file_names(path) if "checkpoints" in name]
  assert vs.verify(url) == (4, 4, [], [], [])


# Damage


@pytest.mark.slow
def test_damage_is_named_and_repaired(campaign, reference, trained, capsys):
  url = campaign
  path, lost, altered = as_folder(url), "test/predictions/c/0/0", "test/votes/c/2/0/0/0"
  files.remove(path / lost)
  data = bytearray(files.read(path / altered))
  data[len(data) // 2] ^= 16
  path.fs.pipe_file((path / altered).path, bytes(data))
  with pytest.raises(
    vs.UserError,
    match=f"is damaged: {lost} is missing; `vmapseeds verify {url}` says what",
  ):
    vs.open_results(url).predictions.load()
  status, out, err = run(capsys, "verify", url)
  assert (status, err) == (1, "")
  assert sorted(re.findall("problem: (.*/c/.*?) ", out)) == sorted([lost, altered])
  assert run(capsys, "verify", url, "--repair")[0] == 0
  assert run(capsys, "work", url, "--quiet")[0] == 0
  assert trained == [*range(4), *range(8, 12)]
  same(url, reference)


def test_a_store_that_cannot_be_reached_is_no_damage(store, monkeypatch, capsys):
  url, predictions = store.folder(), np.arange(6000).reshape(2, 3000) % 3
  vs.import_runs(url, predictions=predictions, labels=predictions[0], progress=False)
  np.testing.assert_array_equal(vs.open_results(url).predictions, predictions)
  look = Results._fault

  def refused(self, *args):
    with store.refusing():
      return look(self, *args)

  before = files.list_file_names(as_folder(url))
  monkeypatch.setattr(Results, "_fault", refused)
  status, out, err = run(capsys, "verify", url, "--repair")
  assert (status, out, err.count("\n")) == (1, "", 1)
  assert re.match(
    f"error: {url}/[^ ]* cannot be reached .(Forbidden|Access Denied)", err
  )
  assert files.list_file_names(as_folder(url)) == before


# UserErrors and failures are one line


@pytest.mark.slow
def test_credentials_that_run_out(store, reference, trained, capsys):
  url = store.folder()
  write = Results.write_block

  def refused(self, block, *rest):
    store.refuses = block >= 1
    write(self, block, *rest)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Results, "write_block", refused)
    try:
      with pytest.raises(
        Failure,
        match=r"s3://.* cannot be reached \(Access Denied\); what was written stays",
      ):
        train(url)
    finally:
      store.refuses = False
  for block in claimed(url):
    # This process lives, and could not give them back.
    files.remove(as_folder(url) / f"blocks/{block}.claim")
  train(url)
  assert trained == [*range(8), *range(4, RUNS)]
  same(url, reference)


def test_what_lies_there_is_left_alone(store, capsys):
  url = store.folder()
  path = as_folder(url)
  path.fs.pipe_file((path / "thesis.tex").path, b"mine")
  path.fs.pipe_file(path.with_name("r2").path + "/x", b"a neighbour")
  before = files.list_file_names(path.parent)
  for argv in (
    ["train", "digits_cnn", "--out", url],
    ["work", url],
    ["verify", url],
    ["report", url],
  ):
    status, out, err = run(capsys, *argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert (
      f"{url} holds something else than results" in err
      or f"{url} is not a results folder" in err
    )
  assert files.list_file_names(path.parent) == before
  path.fs.rm_file((path / "thesis.tex").path)
  path.fs.touch(path.path + "/")  # as consoles of stores make a folder
  assert not folders.is_occupied(url)


@pytest.mark.slow
def test_no_server_and_no_bucket(store, monkeypatch, capsys):
  url = store.folder()
  for argv in (["train", "digits_cnn", "--out"], ["report"], ["verify"]):
    status, out, err = run(capsys, *argv, url.replace("bucket", "buckle"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "there is no such bucket" in err or "is not a results folder" in err
  with socket.socket() as closed:
    closed.bind(("127.0.0.1", 0))
    monkeypatch.setenv(
      "AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}"
    )
    forget()
    for argv, expected in (
      (["train", "digits_cnn", "--out"], 2),
      (["report"], 1),
      (["verify"], 1),
      (["work"], 1),
    ):
      status, out, err = run(capsys, *argv, url)
      assert (status, out, err.count("\n")) == (expected, "", 1)
      assert "cannot be reached (Could not connect to the endpoint URL" in err
  forget()


@pytest.mark.parametrize(
  ("url", "message"),
  [
    (
      "foo://bucket/r",
      "no results can be behind foo://: give a local folder, s3://, gs:// or another",
    ),
    ("https://example.org/r", "no results can be behind https://"),
    ("simplecache::s3://bucket/r", "no results can be behind simplecache::s3://"),
    ("abfs://container/r", "the package for abfs:// is not installed: Install adlfs"),
    (
      Path("s3://bucket/r"),
      "s3:/bucket/r is no URL, which has two slashes: give it as text",
    ),
  ],
)
def test_other_urls_are_one_line(url, message, capsys):
  with pytest.raises(vs.UserError, match=re.escape(message)):
    vs.open_results(url)
  for argv in (
    ["train", "digits_cnn", "--out", url],
    ["work", url],
    ["report", url],
    ["compare", url, url],
  ):
    status, out, err = run(capsys, *argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_paths_of_universal_pathlib_are_refused_as_their_urls_are():
  with pytest.raises(vs.UserError, match="no results can be behind https://"):
    vs.open_results(UPath("https://example.org/r"))


def test_without_the_package_it_says_which(monkeypatch, capsys):
  monkeypatch.delitem(_registry, "s3", raising=False)
  monkeypatch.setitem(sys.modules, "s3fs", None)
  said = "error: s3://bucket/r: the package for s3:// is not installed: pip install 'vmapseeds[s3]'\n"
  assert run(capsys, "verify", "s3://bucket/r") == (2, "", said)


def test_a_file_url_is_a_path(reference):
  assert as_folder(f"file://{reference}") == reference
  assert vs.open_results(f"file://{reference}").sizes["run"] == RUNS
