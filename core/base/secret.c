/* secret.c - see secret.h. */
#include "base/secret.h"

#include <sodium.h>

_Static_assert(DPB_MAC_BYTES == crypto_generichash_BYTES, "a code of 256 bits");
_Static_assert(DPB_SECRET_BYTES == crypto_generichash_KEYBYTES, "a key of 256 bits");

void dpb_mac(const uint8_t key[DPB_SECRET_BYTES], const void *bytes, size_t n,
             uint8_t mac[DPB_MAC_BYTES])
{
    crypto_generichash(mac, DPB_MAC_BYTES, bytes, n, key, DPB_SECRET_BYTES);
}

void dpb_random_bytes(void *bytes, size_t n)
{
    randombytes_buf(bytes, n);
}

void dpb_secret_print(const uint8_t secret[DPB_SECRET_BYTES], char text[2 * DPB_SECRET_BYTES + 1])
{
    sodium_bin2hex(text, 2 * DPB_SECRET_BYTES + 1, secret, DPB_SECRET_BYTES);
}

bool dpb_secret_parse(const char *text, uint8_t secret[DPB_SECRET_BYTES])
{
    return sodium_hex2bin(secret, DPB_SECRET_BYTES, text, 2 * DPB_SECRET_BYTES, NULL, NULL, NULL) ==
           0;
}

bool dpb_same_bytes(const void *a, const void *b, size_t n)
{
    return sodium_memcmp(a, b, n) == 0;
}
