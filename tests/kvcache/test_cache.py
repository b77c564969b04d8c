"""KVCache with named blocks: who holds them, what an eviction frees, and what comes back from a store."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from twostroke.kvcache.cache import KVCache
from twostroke.kvcache.chain import BlockChain, BlockKey


class Store:
    """Remembers names; what is loaded into which blocks is a list."""

    def __init__(self) -> None:
        self.kept: set[bytes] = set()
        self.loaded: list[tuple[int, ...]] = []

    def save(self, key: BlockKey, block_ids: Sequence[int]) -> None:
        self.kept.add(key.digest)

    def load(self, key: BlockKey, block_ids: Sequence[int]) -> bool:
        if key.digest in self.kept:
            self.loaded.append(tuple(block_ids))
        return key.digest in self.kept


def keys_of(tokens: Sequence[int], num_prompt: int | None = None, **options: bool) -> list[BlockKey]:
    chain = BlockChain(4, ("model", "salt"), **options)
    chain.extend(np.array(tokens, np.int32), len(tokens) if num_prompt is None else num_prompt)
    return chain.keys


def test_names_are_of_all_before_and_of_phases() -> None:
    base = keys_of(range(12))
    assert len(base) == 3 and base[:2] == keys_of(range(11))[:2] == keys_of([*range(8), 5, 5, 5, 5])[:2]
    assert keys_of([9, *range(1, 12)])[1].content == base[1].content
    assert not {key.digest for key in keys_of([9, *range(1, 12)])} & {key.digest for key in base}
    assert [a == b for a, b in zip(keys_of(range(12), 6), base, strict=True)] == [True, False, False]
    assert len({keys_of(range(8), prompt)[1].digest for prompt in range(4, 9)}) == 5
    assert keys_of(range(12), 6, all_prompt=True) == base


@pytest.mark.parametrize("scope", [("mod", "elsalt"), ("modelsalt", ""), ("model",), ("model", "salt", "")])
def test_scopes_do_not_run_into_each_other(scope: tuple[str, ...]) -> None:
    other = BlockChain(4, scope)
    other.extend(np.arange(4, dtype=np.int32), 4)
    assert other.keys[0].digest != keys_of(range(4))[0].digest


def test_two_adapters_of_one_name_share_nothing() -> None:
    """An adapter is told by its content, not its name: prompts that are alike have no block in common (BAT-05)."""
    cache, tokens = KVCache(4, (16,), prefix_cache=True), np.arange(16, dtype=np.int32)
    keys = {}
    for adapter in ("helper sha256:aa", "helper sha256:bb"):
        chain = BlockChain(4, ("model", adapter, "salt"))
        chain.extend(tokens, len(tokens))
        keys[adapter] = chain.keys
    first, second = keys.values()
    table = cache.new_table(16)
    assert cache.grow(table, 16)
    cache.offer(table, first)
    assert len(cache.match(first).blocks) == 4 and not cache.match(second).blocks
    assert not {key.digest for key in first} & {key.digest for key in second}


def test_a_chain_grows_as_if_made_at_once() -> None:
    chain, tokens = BlockChain(4, ("model", "salt")), np.arange(30, dtype=np.int32)
    for known in (0, 3, 4, 11, 30):
        chain.extend(tokens[:known], 9)
    assert chain.keys == keys_of(range(30), 9)


def test_a_name_alone_is_no_hit() -> None:
    """The digest of one block with the tokens of another: what a collision would be."""
    cache = KVCache(4, (8,), prefix_cache=True)
    table = cache.new_table(8)
    cache.grow(table, 4)
    (key,) = keys_of(range(4))
    cache.offer(table, [key])
    assert len(cache.match([key]).blocks) == 1
    assert not cache.match([BlockKey(key.digest, key.content[:-5] + b"12345")]).blocks


def test_a_hole_in_a_chain_is_filled_from_the_store_and_the_rest_from_memory() -> None:
    store = Store()
    cache = KVCache(4, (8, 9), prefix_cache=True, store=store)
    keys = keys_of(range(12))
    first = cache.new_table(12)
    cache.grow(first, 12)
    cache.offer(first, keys)
    rest = [first.at(index) for index in (1, 2)]
    cache.release(first)
    cache.prefix._idle.move_to_end(keys[0].digest, last=False)  # the beginning goes first, for once
    big = cache.new_table(24)
    cache.grow(big, 24)
    cache.release(big)
    assert store.kept == {keys[0].digest} and not cache.match(keys).blocks
    table = cache.new_table(12)
    cache.grow(table, 12)
    own = table.at(0)
    cache.restore(table, keys)
    assert store.loaded == [own] and [table.at(index) for index in (1, 2)] == rest and table.num_offered == 3
    cache.release(table)
    assert cache.num_free == 8


@pytest.mark.parametrize("seed", range(5))
def test_random_traffic_conserves_blocks(seed: int) -> None:
    rng = random.Random(seed)
    cache = KVCache(4, (20, 23), prefix_cache=True, store=Store() if seed % 2 else None)
    tables: list[tuple[object, list[BlockKey]]] = []
    for _ in range(2000):
        if rng.random() < 0.6:
            keys = keys_of([rng.randrange(2)] * 4 * rng.randint(1, 6) + [rng.randrange(2)] * 4 * rng.randint(0, 3))
            table = cache.new_table(4 * len(keys))
            match = cache.match(keys)
            if len(keys) - len(match.blocks) <= cache.num_free - match.num_idle:
                cache.attach(table, match)
                assert cache.grow(table, 4 * len(keys))
                cache.restore(table, keys)
                tables.append((table, keys))
        elif tables:
            table, keys = tables.pop(rng.randrange(len(tables)))
            cache.offer(table, keys[: rng.randint(table.num_offered, len(keys))])
            cache.release(table)
        for group, pool in enumerate(cache.pools):
            held = [i for table, _ in tables for i in table.first(table.num_blocks)[group].tolist()]
            named = {block.block_ids[group]: block.num_users for block in cache.prefix._named.values()}
            assert len(named) == len(cache.prefix)
            assert pool.num_blocks - pool.num_free == len(set(held) | set(named))
            assert all(held.count(block_id) == users for block_id, users in named.items())
            assert all(pool.num_holders(i) == held.count(i) + (i in named) for i in set(held) | set(named))
    for table, _ in tables:
        cache.release(table)
    assert cache.num_free == 20
