/*
 * test_secret.c - codes are those that the algorithm's authors published, and what they are of
 * counts.
 */
#include <string.h>

#include "base/secret.h"
#include "lib/test.h"

/* BLAKE2b-256 keyed by 00 01 .. 1f, of the bytes 00 01 02: by Python's hashlib. */
static const uint8_t expected[DPB_MAC_BYTES] = {
    0xe1, 0x4f, 0xc9, 0x16, 0x15, 0x64, 0xdd, 0x08, 0x12, 0x04, 0xf2, 0xdd, 0x61, 0x46, 0xa9, 0xff,
    0xbe, 0xf6, 0x6f, 0x95, 0xd5, 0xdc, 0x80, 0xe0, 0xa2, 0x25, 0xe2, 0x13, 0xc0, 0x9d, 0xad, 0x7b};

TEST(test_mac)
{
    uint8_t key[DPB_SECRET_BYTES], mac[DPB_MAC_BYTES];
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)i;
    dpb_mac(key, key, 3, mac);
    assert_memory_equal(mac, expected, sizeof mac);
    dpb_mac(key, key + 1, 3, mac);
    assert_false(dpb_same_bytes(mac, expected, sizeof mac));
    key[31] ^= 1;
    dpb_mac(key, key, 3, mac);
    assert_false(dpb_same_bytes(mac, expected, sizeof mac));
}

TEST(test_random)
{
    uint8_t a[32] = {0}, b[32] = {0}, none[32] = {0};
    dpb_random_bytes(a, sizeof a);
    dpb_random_bytes(b, sizeof b);
    assert_false(dpb_same_bytes(a, b, sizeof a));
    assert_false(dpb_same_bytes(a, none, sizeof a));
    assert_true(dpb_same_bytes(a, a, sizeof a));
}

TEST_MAIN(NULL, NULL)
