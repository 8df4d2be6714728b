/*
 * siege.h - strangers at a port where processes of a job connect: those that say nothing, half a
 * greeting, rubbish, or all that one of the job would but for the secret.
 */
#ifndef DPB_TESTS_LIB_SIEGE_H
#define DPB_TESTS_LIB_SIEGE_H

#include <stdbool.h>
#include <stdint.h>

#include "world/handshake.h"

enum siege_kind {
    SIEGE_SILENT,
    SIEGE_LEAVES,
    SIEGE_RESETS,
    SIEGE_RUBBISH,
    SIEGE_FLOOD,
    SIEGE_HALF,
    SIEGE_MAGIC,
    SIEGE_PURPOSE,
    SIEGE_UNPROVEN, /* a proof of the right length */
    SIEGE_ECHO,
    SIEGE_KINDS /* one of each in turn */
};
extern const char *const siege_names[SIEGE_KINDS + 1];

struct siege {
    enum siege_kind kind;
    uint16_t port;                /* of 127.0.0.1 */
    struct dpb_greeting greeting; /* that the port expects */
    unsigned n;                   /* so many come; 0: until `stop` */
    bool stop;
    /* results */
    unsigned n_came, n_refused; /* refused: the port closed the connection and said no more */
    bool over;
};

/* A thread's function: the strangers come one after the other. Silent ones stay in a crowd of 100,
 * until others take their turns. It waits for the port at first. */
void *siege_lay(void *siege);

#endif
