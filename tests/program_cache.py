"""JAX's cache of compiled programs, as the tests use it."""

import os
import threading


def keep_all() -> None:
  """Let this process keep every program that it compiles."""
  import jax
  from jax._src import lru_cache

  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
  jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
  lru_cache.LRUCache.put = put_at_once


def put_at_once(cache, key, value):
  """Write a program's file at once, in place of JAX's `LRUCache.put`, so that no process
  reads half of it.
  """
  from jax._src.lru_cache import _CACHE_SUFFIX

  path = cache.path / f"{key}{_CACHE_SUFFIX}"
  if not path.exists():
    part = path.with_name(f"{key}.{os.getpid()}.{threading.get_ident()}")
    part.write_bytes(value)
    part.replace(path)
