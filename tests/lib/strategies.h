/*
 * strategies.h - the strategies of this build, as `dpbench plugins --json` describes them, and the
 * forms in which tests run them. A new strategy is in the table, and so in every test that goes
 * through it, without a line here. Those of tests/plugins are left out.
 */
#ifndef DPB_TESTS_LIB_STRATEGIES_H
#define DPB_TESTS_LIB_STRATEGIES_H

#include <stdbool.h>
#include <stdint.h>

struct strategy {
    char *name, *plugin;   /* "ps_async" of "comm_ps_cpu" */
    uint64_t capabilities; /* DPB_COMM_* (dpbench/comm.h) */
    char *runtime;         /* of the device that it needs: "cuda", "any"; NULL: the host will do */
    bool usable;           /* this machine lacks nothing for it */
    bool library;          /* another library exchanges: many small buckets take it long */
    /* Every step applies the mean of all workers' gradients. A strategy does not say so: those
     * that settle, drop gradients, or have books and carry no codec do something else. */
    bool synchronous;
    /* What only its options can tell: that its messages are to be small; "" where nothing is. */
    const char *small;
    bool machines; /* it is made for several machines */
    bool shards;   /* it has comm.shard */
};

/* The first, after NULL; the next; NULL after the last. By name. The first call asks dpbench, with
 * the DPBENCH_PLUGIN_PATH of then; it ends the program if dpbench does not answer. */
const struct strategy *strategy_after(const struct strategy *strategy);
/* NULL: there is none. */
const struct strategy *strategy_named(const char *name);
/* Whether jobs that dpbench starts itself can use it, on any device. */
bool strategy_on_host(const struct strategy *strategy);

/* A strategy that exchanges on the host in one of its forms: one for each number of servers, and
 * one with comm.shard = optimizer. */
struct strategy_form {
    const char *name;
    int servers;
    const char *label; /* for tests' names and messages */
    /* It sends messages and sums in an order of its own, not that of the ranks (which for two
     * workers is the same): along the ring of the workers, or as a library does, which takes long
     * for many small buckets. Others read each other's memory. */
    bool network, ring;
    bool machines; /* its workers, or they and its servers, are told that they are on two machines
                    */
    bool sharded, synchronous;
};

/* As strategy_after: the synchronous forms. */
const struct strategy_form *strategy_form_after(const struct strategy_form *form);
/* Likewise: all forms. */
const struct strategy_form *any_form_after(const struct strategy_form *form);
/* "comm.name=... run.servers=... run.workers=...", and which rank is on which machine: half of the
 * workers on the first; all of them, where there are servers. `prefix` of the name: "mutant_" or
 * "". @borrowed until the next call. */
const char *form_settings(const struct strategy_form *form, const char *prefix, int workers);
/* Whether these workers and elements a bucket are a cell for the strategy: with a library, or
 * several machines, not all of them are, for the time that they take. */
bool is_cell(const struct strategy_form *form, int workers, bool small_buckets);

#endif
