/* tcp_wire.c - see tcp_wire.h. */
#include "lib/tcp_wire.h"

#include "lib/wire.h"

#define HELLO_MAGIC UINT64_C(0x31474e4952425044) /* "DPBRING1" */

void tcp_write_hello(uint8_t bytes[TCP_HELLO_BYTES], const struct tcp_identity *identity)
{
    uint8_t *at = wire_put(bytes, HELLO_MAGIC, 8);
    at = wire_put(at, identity->dialler, 4);
    at = wire_put(at, identity->acceptor, 4);
    at = wire_put(at, identity->stream, 4);
    memcpy(at, identity->dialler_nonce, TCP_NONCE_BYTES);
}

bool tcp_read_hello(const uint8_t bytes[TCP_HELLO_BYTES], struct tcp_identity *identity)
{
    const uint8_t *at = bytes;
    if (wire_get(&at, 8) != HELLO_MAGIC)
        return false;
    identity->dialler = (uint32_t)wire_get(&at, 4);
    identity->acceptor = (uint32_t)wire_get(&at, 4);
    identity->stream = (uint32_t)wire_get(&at, 4);
    memcpy(identity->dialler_nonce, at, TCP_NONCE_BYTES);
    return true;
}

void tcp_code(const struct dpb_host *host, const uint8_t secret[DPB_SECRET_BYTES],
              const char *party_name, enum tcp_side side, const struct tcp_identity *identity,
              uint8_t code[DPB_MAC_BYTES])
{
    uint8_t said[4 + TCP_NAME_BYTES + 3 * 4 + 2 * TCP_NONCE_BYTES] = {0};
    uint8_t *at = wire_put(said, side, 4);
    memcpy(at, party_name, strnlen(party_name, TCP_NAME_BYTES - 1));
    at = wire_put(at + TCP_NAME_BYTES, identity->dialler, 4);
    at = wire_put(at, identity->acceptor, 4);
    at = wire_put(at, identity->stream, 4);
    memcpy(at, identity->dialler_nonce, TCP_NONCE_BYTES);
    memcpy(at + TCP_NONCE_BYTES, identity->acceptor_nonce, TCP_NONCE_BYTES);
    host->secret->mac(secret, said, sizeof said, code);
}
