import random

import pytest

from twostroke.kvcache.cache import KVCache
from twostroke.kvcache.pool import BlockPool, BlockPoolError


def test_blocks_are_given_once_and_return() -> None:
    pool = BlockPool(5)
    first, second = pool.allocate(2), pool.allocate(3)
    assert sorted(first + second) == [0, 1, 2, 3, 4] and pool.num_free == 0
    pool.free(first)
    assert pool.num_free == 2 and sorted(pool.allocate(2)) == sorted(first)


def test_a_shortage_raises_and_takes_nothing() -> None:
    pool = BlockPool(3)
    pool.allocate(1)
    with pytest.raises(BlockPoolError, match="3 blocks asked for, 2 of 3 are free"):
        pool.allocate(3)
    assert pool.num_free == 2


def test_a_shared_block_is_free_when_its_last_holder_leaves() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.free(blocks)
    assert pool.num_free == 1 and pool.num_holders(blocks[0]) == 1
    pool.free(blocks)
    assert pool.num_free == 2


@pytest.mark.parametrize("block_id", [0, -1, 4])
def test_a_block_nobody_holds_can_be_neither_freed_nor_shared(block_id: int) -> None:
    pool = BlockPool(4)
    pool.free(pool.allocate(1))
    for action in (pool.free, pool.share):
        with pytest.raises(BlockPoolError, match=f"block {block_id} is not held"):
            action([block_id])
    assert pool.num_free == 4


def test_groups_grow_together_or_not_at_all() -> None:
    cache = KVCache(16, (8, 3))
    table, other = cache.new_table(128), cache.new_table(128)
    assert cache.num_blocks == 3
    assert cache.grow(table, 17) and table.num_blocks == 2
    assert cache.grow(table, 32) and table.num_blocks == 2
    assert not cache.grow(other, 17) and other.num_blocks == 0
    assert [pool.num_free for pool in cache.pools] == [6, 1]
    assert [len(ids) for ids in table.first(1)] == [1, 1]
    cache.release(table)
    assert [pool.num_free for pool in cache.pools] == [8, 3] and table.num_blocks == 0


def test_what_a_step_was_given_does_not_move_as_the_table_grows() -> None:
    cache = KVCache(4, (64,))
    table = cache.new_table(256)
    cache.grow(table, 8)
    (before,) = table.first(2)
    kept = before.tolist()
    cache.grow(table, 200)
    assert before.tolist() == kept == table.first(2)[0].tolist()


def test_random_traffic_conserves_blocks() -> None:
    rng, pool = random.Random(7), BlockPool(40)
    held: list[int] = []
    for _ in range(3000):
        action = rng.random()
        if action < 0.4 and pool.num_free:
            held += pool.allocate(rng.randint(1, pool.num_free))
        elif action < 0.6 and held:
            pool.share([shared := rng.choice(held)])
            held.append(shared)
        elif held:
            pool.free([held.pop(rng.randrange(len(held)))])
        assert pool.num_free == 40 - len(set(held))
        assert all(pool.num_holders(block_id) == held.count(block_id) for block_id in range(40))
