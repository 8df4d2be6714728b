/* tcp_wire.c - see tcp_wire.h. */
#include "lib/tcp_wire.h"

#include "lib/wire.h"

#define HELLO_MAGIC UINT64_C(0x31474e4952425044) /* "DPBRING1" */
#define FRAME_MAGIC UINT32_C(0x46425044)         /* "DPBF" */
#define CREDIT_MAGIC UINT32_C(0x43425044)        /* "DPBC" */

/* ---- numbers ------------------------------------------------------------------------------- */

static uint32_t get32(const uint8_t **at)
{
    return (uint32_t)wire_get(at, 4);
}

/* ---- proving ------------------------------------------------------------------------------- */

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
    identity->dialler = get32(&at);
    identity->acceptor = get32(&at);
    identity->stream = get32(&at);
    memcpy(identity->dialler_nonce, at, TCP_NONCE_BYTES);
    return true;
}

void tcp_code(const struct dpb_host *host, const uint8_t secret[DPB_SECRET_BYTES],
              const char *ring_name, enum tcp_side side, const struct tcp_identity *identity,
              uint8_t code[DPB_MAC_BYTES])
{
    uint8_t said[4 + TCP_NAME_BYTES + 3 * 4 + 2 * TCP_NONCE_BYTES] = {0};
    uint8_t *at = wire_put(said, side, 4);
    memcpy(at, ring_name, strnlen(ring_name, TCP_NAME_BYTES - 1));
    at = wire_put(at + TCP_NAME_BYTES, identity->dialler, 4);
    at = wire_put(at, identity->acceptor, 4);
    at = wire_put(at, identity->stream, 4);
    memcpy(at, identity->dialler_nonce, TCP_NONCE_BYTES);
    memcpy(at + TCP_NONCE_BYTES, identity->acceptor_nonce, TCP_NONCE_BYTES);
    host->secret->mac(secret, said, sizeof said, code);
}

/* ---- frames -------------------------------------------------------------------------------- */

void tcp_write_frame(uint8_t bytes[TCP_FRAME_BYTES], const struct transport_label *label)
{
    uint8_t *at = wire_put(bytes, FRAME_MAGIC, 4);
    at = wire_put(at, label->landing, 4);
    at = wire_put(at, label->step, 8);
    at = wire_put(at, label->bucket, 4);
    at = wire_put(at, label->round, 4);
    at = wire_put(at, label->chunk, 4);
    at = wire_put(at, 0, 4);
    at = wire_put(at, label->at_bytes, 8);
    wire_put(at, label->bytes, 8);
}

const char *tcp_read_frame(const uint8_t bytes[TCP_FRAME_BYTES],
                           const struct transport_memory *memory, struct transport_label *label)
{
    const uint8_t *at = bytes;
    uint32_t magic = get32(&at);
    label->landing = get32(&at);
    label->step = wire_get(&at, 8);
    label->bucket = get32(&at);
    label->round = get32(&at);
    label->chunk = get32(&at);
    uint32_t unused = get32(&at);
    label->at_bytes = wire_get(&at, 8);
    label->bytes = wire_get(&at, 8);
    if (magic != FRAME_MAGIC || unused != 0)
        return "no frame of this version";
    if (label->landing != TRANSPORT_INBOX && label->landing != TRANSPORT_ARENA)
        return "its landing";
    if (label->bytes == 0 || label->bytes > memory->slot_bytes)
        return "its length";
    if (label->at_bytes > memory->arena_bytes ||
        label->bytes > memory->arena_bytes - label->at_bytes)
        return "its place";
    return NULL;
}

void tcp_write_credit(uint8_t bytes[TCP_CREDIT_BYTES], uint32_t n)
{
    wire_put(wire_put(bytes, CREDIT_MAGIC, 4), n, 4);
}

bool tcp_read_credit(const uint8_t bytes[TCP_CREDIT_BYTES], uint32_t most, uint32_t *n)
{
    const uint8_t *at = bytes;
    uint32_t magic = get32(&at);
    *n = get32(&at);
    return magic == CREDIT_MAGIC && *n > 0 && *n <= most;
}
