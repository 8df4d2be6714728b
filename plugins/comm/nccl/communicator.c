/* communicator.c - see communicator.h. NCCL's User Guide, "Communicator fault tolerance". */
#include "communicator.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As NCCL's environment names them. */
const char *const nccl_algos[] = {"auto",          "ring", "tree",      "collnet_direct",
                                  "collnet_chain", "nvls", "nvls_tree", NULL};
static const char *const algo_words[] = {"",     "Ring",    "Tree", "CollnetDirect", "CollnetChain",
                                         "NVLS", "NVLSTree"};
const char *const nccl_protos[] = {"auto", "ll", "ll128", "simple", NULL};
static const char *const proto_words[] = {"", "LL", "LL128", "Simple"};

enum { MOST_CTAS = 64 /* of NCCL's, whatever it is given */, WORD_BYTES = 32, TEXT_BYTES = 192 };

/* ---- errors -------------------------------------------------------------------------------- */

/* NCCL takes host and bus for the identity of a GPU. */
static dpb_status fail_shared(const struct communicator *communicator, const char *detail)
{
    return communicator->host->fail(DPB_USAGE,
                                    "NCCL takes each GPU for one worker: %s; give every worker its "
                                    "own by device.ids, or, for a "
                                    "test, set comm.host_ids = rank",
                                    detail);
}

/* `call` has failed, or what it began. */
static dpb_status fail(const struct communicator *communicator, const char *call, ncclResult_t code,
                       const struct dpb_wait *what)
{
    const char *detail = ncclGetLastError(communicator->nccl);
    char where[96] = "";
    if (detail && strstr(detail, "Duplicate GPU"))
        return fail_shared(communicator, detail);
    if (what && what->bucket != UINT64_MAX)
        snprintf(where, sizeof where, " (step %llu, bucket %llu, %llu bytes)",
                 (unsigned long long)what->step, (unsigned long long)what->bucket,
                 (unsigned long long)what->bytes);
    return communicator->host->fail(
        code == ncclRemoteError ? DPB_PEER : DPB_FAILED,
        "NCCL: %s failed%s: %s%s%s; NCCL_DEBUG=WARN in the environment makes NCCL say more", call,
        where, ncclGetErrorString(code), detail && detail[0] ? ": " : "", detail ? detail : "");
}

dpb_status communicator_look(const struct communicator *communicator, const struct dpb_wait *what)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t code = ncclCommGetAsyncError(communicator->nccl, &state);
    if (code != ncclSuccess)
        return fail(communicator, "ncclCommGetAsyncError", code, what);
    return state == ncclSuccess || state == ncclInProgress
               ? DPB_OK
               : fail(communicator, "an all-reduce that was launched", state, what);
}

dpb_status communicator_finish(const struct communicator *communicator, const char *call,
                               ncclResult_t code, const struct dpb_wait *what)
{
    int64_t begin_ns = 0;
    while (code == ncclInProgress) {
        ncclResult_t looked = ncclCommGetAsyncError(communicator->nccl, &code);
        if (looked != ncclSuccess)
            return fail(communicator, "ncclCommGetAsyncError", looked, what);
        if (code != ncclInProgress)
            break;
        DPB_TRY(communicator->host->patience(what, &begin_ns));
        sched_yield();
    }
    return code == ncclSuccess ? DPB_OK : fail(communicator, call, code, what);
}

/* ---- options ------------------------------------------------------------------------------- */

/* What `variable` holds is what NCCL goes by: it is the option's value, if that has one, and refused if
 * it was another before. */
static dpb_status settle_variable(const struct dpb_host *host, const char *option,
                                  const char *value, const char *variable)
{
    const char *there = getenv(variable);
    if (!value[0]) {
        if (there && there[0])
            host->report(option, "%s (%s)", there, variable);
        return DPB_OK;
    }
    if (there && strcmp(there, value) != 0)
        return host->fail(
            DPB_USAGE,
            "comm.%s wants %s = %s, but the environment has %s = %s, by which NCCL would "
            "go; take one of them away",
            option, variable, value, variable, there);
    if (setenv(variable, value, 1) != 0)
        return host->fail(DPB_NO_MEMORY, "no memory for the environment");
    return DPB_OK;
}

/* These go into NCCL's configuration, over which the environment would win. */
static dpb_status settle_ctas(const struct dpb_host *host, const char *option, int64_t ctas,
                              const char *variable)
{
    const char *there = getenv(variable);
    if (there && there[0] && ctas > 0)
        return host->fail(
            DPB_USAGE,
            "comm.%s = %lld, but the environment has %s = %s, by which NCCL would go; "
            "take one of them away",
            option, (long long)ctas, variable, there);
    if (there && there[0])
        host->report(option, "%s (%s)", there, variable);
    return DPB_OK;
}

dpb_status communicator_settle_options(const struct dpb_host *host,
                                       const struct nccl_options *options,
                                       const struct dpb_comm_args *args)
{
    char host_id[WORD_BYTES] = "";
    if (options->max_ctas > 0 && options->min_ctas > options->max_ctas)
        return host->fail(DPB_USAGE, "comm.min_ctas = %lld is more than comm.max_ctas = %lld",
                          (long long)options->min_ctas, (long long)options->max_ctas);
    if (options->host_ids == HOST_IDS_RANK)
        snprintf(host_id, sizeof host_id, "dpbench-rank-%u", args->rank);
    DPB_TRY(settle_ctas(host, "min_ctas", options->min_ctas, "NCCL_MIN_CTAS"));
    DPB_TRY(settle_ctas(host, "max_ctas", options->max_ctas, "NCCL_MAX_CTAS"));
    DPB_TRY(settle_variable(host, "algo", algo_words[options->algo], "NCCL_ALGO"));
    DPB_TRY(settle_variable(host, "proto", proto_words[options->proto], "NCCL_PROTO"));
    DPB_TRY(settle_variable(host, "host_ids", host_id, "NCCL_HOSTID"));
    if (options->host_ids == HOST_IDS_RANK && args->rank == 0)
        host->warn(
            "nccl_host_ids",
            "comm.host_ids = rank: NCCL takes every worker for a machine of its own and goes by "
            "the network between them, also where they share a GPU; this is for tests, its rates "
            "say nothing");
    return DPB_OK;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* What rank 0 tells the others. */
struct card {
    ncclUniqueId id;
    char settings[TEXT_BYTES];
};

static const char *variable_or_auto(const char *variable)
{
    const char *there = getenv(variable);
    return there && there[0] ? there : "auto";
}

/* What must be the same on all ranks. */
static void write_settings(char *text, size_t bytes)
{
    int version = 0;
    ncclGetVersion(&version);
    snprintf(text, bytes, "NCCL %d with NCCL_ALGO %s and NCCL_PROTO %s", version,
             variable_or_auto("NCCL_ALGO"), variable_or_auto("NCCL_PROTO"));
}

static dpb_status agree(const struct communicator *communicator, uint32_t rank, struct card *card)
{
    static uint32_t n_opened;
    const struct dpb_host *host = communicator->host;
    char key[WORD_BYTES], own[TEXT_BYTES];
    size_t bytes = sizeof *card;
    snprintf(key, sizeof key, "nccl/%u", n_opened++);
    write_settings(own, sizeof own);
    if (rank == 0) {
        memset(card, 0, sizeof *card);
        memcpy(card->settings, own, sizeof own);
        ncclResult_t code = ncclGetUniqueId(&card->id);
        if (code != ncclSuccess)
            return fail(communicator, "ncclGetUniqueId", code, NULL);
        return host->store->put(key, card, sizeof *card);
    }
    DPB_TRY(host->store->get(key, card, &bytes, 0));
    if (bytes != sizeof *card || memchr(card->settings, 0, sizeof card->settings) == NULL ||
        strcmp(card->settings, own) != 0)
        return host->fail(DPB_UNSUPPORTED, "rank 0 has %.*s, and rank %u has %s",
                          (int)sizeof card->settings - 1, card->settings, rank, own);
    return DPB_OK;
}

dpb_status communicator_open(struct communicator *made, const struct dpb_host *host,
                             const struct nccl_options *options, const struct dpb_comm_args *args)
{
    static const char call[] = "ncclCommInitRankConfig";
    const struct dpb_wait what = {
        .bucket = UINT64_MAX, .peer = UINT32_MAX, .purpose = "NCCL to connect the workers"};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct card card;
    *made = (struct communicator){.host = host};
    DPB_TRY(agree(made, args->rank, &card));
    config.blocking = 0;
    config.commName = "dpbench";
    if (options->min_ctas > 0)
        config.minCTAs = (int)options->min_ctas;
    /* NCCL refuses a least number without a greatest. */
    if (options->max_ctas > 0 || options->min_ctas > 0)
        config.maxCTAs = options->max_ctas > 0 ? (int)options->max_ctas : MOST_CTAS;
    ncclResult_t code = ncclCommInitRankConfig(&made->nccl, (int)args->n_workers, card.id,
                                               (int)args->rank, &config);
    return communicator_finish(made, call, code, &what);
}

/* ---- the end ------------------------------------------------------------------------------- */

void communicator_abort(struct communicator *communicator)
{
    if (communicator->nccl)
        ncclCommAbort(communicator->nccl);
    communicator->nccl = NULL;
}

/* What is behind the last kernels, as sends to a peer that is slower, is done before the communicator
 * may go. */
void communicator_close(struct communicator *communicator)
{
    static const int64_t grace_ns = 1000000000;
    if (!communicator->nccl)
        return;
    int64_t until_ns = communicator->host->now_ns() + grace_ns;
    ncclResult_t code = ncclCommFinalize(communicator->nccl);
    while (code == ncclInProgress && communicator->host->now_ns() < until_ns) {
        sched_yield();
        if (ncclCommGetAsyncError(communicator->nccl, &code) != ncclSuccess)
            break;
    }
    if (code != ncclSuccess) {
        communicator_abort(communicator);
        return;
    }
    ncclCommDestroy(communicator->nccl);
    communicator->nccl = NULL;
}
