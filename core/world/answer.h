/*
 * answer.h - a thread that answers questions which another rank gives under a key of the store. For
 * servers: their main thread works for the strategy until the workers have closed.
 */
#ifndef DPB_CORE_WORLD_ANSWER_H
#define DPB_CORE_WORLD_ANSWER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpbench/status.h"

enum { DPB_QUESTION_BYTES = 32, DPB_ANSWER_KEY = 48 };

/* Zeroed: none runs. */
struct dpb_answerer {
    char key[DPB_ANSWER_KEY];
    /* Answers a question of `bytes` bytes. After a failure the thread answers no more: whoever asks
     * fails at its deadline. */
    dpb_status (*answer)(void *owner, const void *question, size_t bytes);
    void *owner; /* @borrowed until stop */
    pthread_t thread;
    bool runs;
};

/* The answerer stays where it is until it is stopped. Questions have 2 to DPB_QUESTION_BYTES bytes.
 * `what` is for the message of a failure. */
dpb_status dpb_answerer_start(struct dpb_answerer *answerer, const char *what);
/* Waits for the answer under way. Accepts one that was not started. */
void dpb_answerer_stop(struct dpb_answerer *answerer);

#endif
