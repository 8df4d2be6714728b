/*
 * secret.h - random bytes and keyed message authentication codes, by libsodium, to prove that a
 * process knows a secret. Any thread; nothing here blocks or allocates.
 *
 * How peers prove that they know the key: each side sends a nonce (dpb_random_bytes), then a code
 * over its role, both nonces and all other data to protect. The codes of the two sides must differ
 * (by the role), or a stranger could send one side's code back as the other's.
 */
#ifndef DPB_CORE_BASE_SECRET_H
#define DPB_CORE_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DPB_SECRET_BYTES = 32, DPB_MAC_BYTES = 32 };

/* Keyed BLAKE2b of 256 bits (RFC 7693). */
void dpb_mac(const uint8_t key[DPB_SECRET_BYTES], const void *bytes, size_t n,
             uint8_t mac[DPB_MAC_BYTES]);
/* Random bytes of the system's generator. Without a generator the process ends. */
void dpb_random_bytes(void *bytes, size_t n);
/* As hexadecimal digits, ended by NUL. */
void dpb_secret_print(const uint8_t secret[DPB_SECRET_BYTES], char text[2 * DPB_SECRET_BYTES + 1]);
/* False: the text does not begin with all the digits of a secret. */
bool dpb_secret_parse(const char *text, uint8_t secret[DPB_SECRET_BYTES]);
/* Compares in constant time, so the time reveals nothing about the bytes. */
bool dpb_same_bytes(const void *a, const void *b, size_t n);

#endif
