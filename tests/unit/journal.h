/*
 * journal.h - made-up journals of workers: steps of known lengths and parts.
 */
#ifndef DPB_TESTS_UNIT_JOURNAL_H
#define DPB_TESTS_UNIT_JOURNAL_H

#include <stdlib.h>

#include "lib/test.h"
#include "measure/journal.h"

enum { CAPACITY = 64, MS = 1000000 };

static inline struct dpb_journal *make_journal(void)
{
    struct dpb_journal *journal = calloc(1, sizeof *journal + CAPACITY * sizeof(struct dpb_record));
    assert_non_null(journal);
    journal->capacity = CAPACITY;
    journal->timed_from = UINT64_MAX;
    return own_memory(journal, free);
}

/* Appends a step that begins where the last one ended (the first: at `begin_ms`). Its parts are 5
 * %, 20 %, 45 %, 5 % (delay), 10 %, 15 % of it; hidden and wait_peer 30 % and 2 %. */
static inline struct dpb_record *add_step(struct dpb_journal *journal, int64_t begin_ms, int64_t ms)
{
    uint64_t k = journal->n_records++;
    struct dpb_record *record = &journal->records[k];
    int64_t begin = k == 0 ? begin_ms * MS : record[-1].begin_ns + record[-1].step_ns;
    *record = (struct dpb_record){
        .begin_ns = begin,
        .step_ns = ms * MS,
        .data_wait_ns = ms * MS / 100 * 5,
        .forward_ns = ms * MS / 100 * 20,
        .delay_ns = ms * MS / 100 * 5,
        .backward_ns = ms * MS / 100 * 45,
        .optimizer_ns = ms * MS / 100 * 10,
        .comm_exposed_ns = ms * MS / 100 * 15,
        .comm_hidden_ns = ms * MS / 100 * 30,
        .comm_wait_peer_ns = ms * MS / 100 * 2,
        .comm_bytes = 100,
        .loss = 1.0,
    };
    return record;
}

#endif
