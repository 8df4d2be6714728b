/*
 * secret.h - proving that one knows a secret without saying it: random bytes and keyed message
 * authentication codes, by libsodium. Any thread; nothing here blocks or allocates.
 *
 * A proof that a peer knows the key: each side sends a nonce (dpb_random_bytes), then the code of
 * who it is, both nonces and what else must be believed; the codes of the two sides must differ in
 * something (who is the one that connected), or one could be sent back as the other.
 */
#ifndef DPB_CORE_BASE_SECRET_H
#define DPB_CORE_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpbench/host.h"

/* Keyed BLAKE2b of 256 bits (RFC 7693). */
void dpb_mac(const uint8_t key[DPB_SECRET_BYTES], const void *bytes, size_t n,
             uint8_t mac[DPB_MAC_BYTES]);
/* From the system's generator; a process without one is ended. */
void dpb_random_bytes(void *bytes, size_t n);
/* Takes as long whatever the bytes are: the time tells nothing about them. */
bool dpb_same_bytes(const void *a, const void *b, size_t n);

#endif
