/*
 * tcp_wire.h - the messages by which a TCP connection proves that both its ends belong to the job.
 * All numbers are little endian; nothing that is read is believed before it was checked here. No
 * I/O.
 *
 *     dialler -> acceptor   hello: who I am, for whom this is, which of the streams; nonce
 *     acceptor -> dialler   answer: nonce, code of "answer", both ranks, stream and both nonces
 *     dialler -> acceptor   proof: code of "proof", and the same
 *     acceptor -> dialler   welcome: a byte
 *
 * The code is host->secret->mac with the secret of the party, so neither side's can be sent back as
 * the other's, nor be used for another connection. Until a proof has come, the acceptor has sent
 * and kept a few bytes for whoever it is.
 */
#ifndef DPB_PLUGINS_LIB_TCP_WIRE_H
#define DPB_PLUGINS_LIB_TCP_WIRE_H

#include "dpbench/host.h"

enum {
    TCP_NONCE_BYTES = 32,
    TCP_HELLO_BYTES = 8 + 3 * 4 + TCP_NONCE_BYTES,
    TCP_ANSWER_BYTES = TCP_NONCE_BYTES + DPB_MAC_BYTES,
    TCP_PROOF_BYTES = DPB_MAC_BYTES,
    TCP_NAME_BYTES = 64 /* of a party's name, with its end */
};

/* A connection as both its ends know it. */
struct tcp_identity {
    uint32_t dialler, acceptor; /* ranks */
    uint32_t stream;
    uint8_t dialler_nonce[TCP_NONCE_BYTES], acceptor_nonce[TCP_NONCE_BYTES];
};

enum tcp_side { TCP_ANSWER, TCP_PROOF };

void tcp_write_hello(uint8_t bytes[TCP_HELLO_BYTES], const struct tcp_identity *identity);
/* Fills in what a hello says; false: it is none. */
bool tcp_read_hello(const uint8_t bytes[TCP_HELLO_BYTES], struct tcp_identity *identity);

/* What a side proves that it knows the secret by. */
void tcp_code(const struct dpb_host *host, const uint8_t secret[DPB_SECRET_BYTES],
              const char *party_name, enum tcp_side side, const struct tcp_identity *identity,
              uint8_t code[DPB_MAC_BYTES]);

#endif
