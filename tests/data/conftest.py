"""Data sets in their original formats, served from localhost as their authors serve
them.
"""

import http.server
import threading

import pytest
from originals import cifar10_archive, point_to, register


@pytest.fixture(scope="session")
def serve():
  """serve(files) -> the address of `files`, a dict from path to bytes, on one server."""
  served = []

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      number, _, path = self.path.lstrip("/").partition("/")
      body = served[int(number)].get(path)
      self.send_response(404 if body is None else 200)
      self.send_header("Content-Length", str(len(body or b"")))
      self.end_headers()
      self.wfile.write(body or b"")

    def log_message(self, *_):
      pass

  def add(files):
    served.append(files)
    return f"http://127.0.0.1:{server.server_port}/{len(served) - 1}/"

  server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("NO_PROXY", "*")
    yield add
  server.shutdown()
  server.server_close()


@pytest.fixture
def cifar10(serve, monkeypatch, tmp_path):
  """A small CIFAR-10 in the original format that `load("cifar10")` will download; its
  arrays and folder.
  """
  from tensorflow_datasets.image_classification.cifar import Cifar10, CifarInfo

  archive, *arrays = cifar10_archive()
  files = {"cifar-10-binary.tar.gz": archive}
  address = serve(files)
  original = Cifar10._cifar_info.fget
  point_to(
    monkeypatch, Cifar10, original, CifarInfo, address + "cifar-10-binary.tar.gz"
  )
  register(monkeypatch, Cifar10, address, files)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  return arrays, tmp_path
