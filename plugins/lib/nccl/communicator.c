/* communicator.c - see communicator.h. NCCL's User Guide, "Communicator fault tolerance". */
#include "lib/nccl/communicator.h"

#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cuda/driver.h"
#include "lib/strategy/slices.h"

/* As NCCL's environment names them, in the order of nccl.c. */
static const char *const algo_words[] = {"",     "Ring",    "Tree", "CollnetDirect", "CollnetChain",
                                         "NVLS", "NVLSTree"};
static const char *const proto_words[] = {"", "LL", "LL128", "Simple"};

enum { MOST_CTAS = 64 /* of NCCL's, whatever it is given */, WORD_BYTES = 32, TEXT_BYTES = 192 };

/* ---- the version of NCCL, and whether it can run --------------------------------------------- */

enum { LEAST_VERSION = NCCL_VERSION(2, 14, 3) /* the first whose calls need not block */ };

/* tests/gpu/libraries looks for this text in the file. */
#define TEXT(number) #number
#define TEXT_OF(number) TEXT(number)
static const char built_for[] =
    "built for NCCL " TEXT_OF(NCCL_MAJOR) "." TEXT_OF(NCCL_MINOR) "." TEXT_OF(NCCL_PATCH);
static char loaded[24];

const struct dpb_library nccl_versions[] = {
    {.name = "NCCL", .built = &built_for[sizeof "built for NCCL"], .loaded = loaded},
    {.name = NULL}};
const struct dpb_host *nccl_host;

const char *nccl_missing(void)
{
    return cuda_driver_missing(CUDART_VERSION);
}

bool nccl_set_up(const struct dpb_host *host)
{
    int version = 0;
    ncclGetVersion(&version);
    snprintf(loaded, sizeof loaded, "%d.%d.%d", version / 10000, version % 10000 / 100,
             version % 100);
    if (version < LEAST_VERSION || version / 10000 != NCCL_VERSION_CODE / 10000) {
        host->fail(DPB_FAILED, "built for NCCL %s, but NCCL %s was loaded; mend LD_LIBRARY_PATH",
                   nccl_versions[0].built, loaded);
        return false;
    }
    nccl_host = host;
    return true;
}

/* ---- errors -------------------------------------------------------------------------------- */

/* NCCL takes host and bus for the identity of a GPU. */
static dpb_status fail_shared(const struct dpb_communicator *communicator, const char *detail)
{
    return communicator->host->fail(DPB_USAGE,
                                    "NCCL takes each GPU for one worker: %s; give every worker its "
                                    "own by device.ids and run.learners = 1, or, for a test, set "
                                    "comm.host_ids = rank",
                                    detail);
}

/* `call` has failed, or the work that it began. */
static dpb_status fail(const struct dpb_communicator *communicator, const char *call,
                       ncclResult_t code, const struct dpb_wait *what)
{
    const char *detail = ncclGetLastError(communicator->nccl);
    char where[96] = "";
    if (detail && strstr(detail, "Duplicate GPU"))
        return fail_shared(communicator, detail);
    if (what && what->bucket != UINT64_MAX)
        snprintf(where, sizeof where, " (exchange %llu, bucket %llu, %llu bytes)",
                 (unsigned long long)what->step, (unsigned long long)what->bucket,
                 (unsigned long long)what->bytes);
    return communicator->host->fail(
        code == ncclRemoteError ? DPB_PEER : DPB_FAILED,
        "NCCL: %s failed%s: %s%s%s; NCCL_DEBUG=WARN in the environment makes NCCL say more", call,
        where, ncclGetErrorString(code), detail && detail[0] ? ": " : "", detail ? detail : "");
}

dpb_status communicator_look(const struct dpb_communicator *communicator,
                             const struct dpb_wait *what)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t code = ncclCommGetAsyncError(communicator->nccl, &state);
    if (code != ncclSuccess)
        return fail(communicator, "ncclCommGetAsyncError", code, what);
    return state == ncclSuccess || state == ncclInProgress
               ? DPB_OK
               : fail(communicator, "a sum that was launched", state, what);
}

/* `call` has returned `code`: blocks until NCCL has finished the call. A call for work on a stream
 * is finished when the work is in the stream. */
static dpb_status finish(const struct dpb_communicator *communicator, const char *call,
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

/* NCCL reads `variable`. If the option has a value, the variable gets this value; a variable that
 * had another value before is refused. */
static dpb_status settle_variable(const char *option, const char *value, const char *variable)
{
    const struct dpb_host *host = nccl_host;
    const char *there = getenv(variable);
    if (!value[0]) {
        if (there && there[0])
            host->report(option, "%s (%s)", there, variable);
        return DPB_OK;
    }
    if (there && there[0] && strcmp(there, value) != 0)
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
static dpb_status settle_ctas(const char *option, int64_t ctas, const char *variable)
{
    const struct dpb_host *host = nccl_host;
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

dpb_status communicator_settle_options(const struct dpb_nccl_options *options,
                                       const struct dpb_comm_args *job)
{
    const struct dpb_host *host = nccl_host;
    char host_id[WORD_BYTES] = "";
    if (options->max_ctas > 0 && options->min_ctas > options->max_ctas)
        return host->fail(DPB_USAGE, "comm.min_ctas = %lld is more than comm.max_ctas = %lld",
                          (long long)options->min_ctas, (long long)options->max_ctas);
    if (options->host_ids == DPB_HOST_IDS_RANK)
        snprintf(host_id, sizeof host_id, "dpbench-rank-%u", job->rank);
    DPB_TRY(settle_ctas("min_ctas", options->min_ctas, "NCCL_MIN_CTAS"));
    DPB_TRY(settle_ctas("max_ctas", options->max_ctas, "NCCL_MAX_CTAS"));
    DPB_TRY(settle_variable("algo", algo_words[options->algo], "NCCL_ALGO"));
    DPB_TRY(settle_variable("proto", proto_words[options->proto], "NCCL_PROTO"));
    DPB_TRY(settle_variable("host_ids", host_id, "NCCL_HOSTID"));
    if (options->host_ids == DPB_HOST_IDS_RANK && job->rank == 0)
        host->warn(
            "nccl_host_ids",
            "comm.host_ids = rank: NCCL takes every worker for a machine of its own and goes by "
            "the network between them, also where they share a GPU; this is for tests, its rates "
            "say nothing");
    return DPB_OK;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* The group's first rank sends this to the others. */
struct card {
    ncclUniqueId id;
    char settings[TEXT_BYTES];
};

static const char *variable_or_auto(const char *variable)
{
    const char *there = getenv(variable);
    return there && there[0] ? there : "auto";
}

/* These settings must be the same on all ranks. */
static void write_settings(char *text, size_t bytes)
{
    int version = 0;
    ncclGetVersion(&version);
    snprintf(text, bytes, "NCCL %d with NCCL_ALGO %s and NCCL_PROTO %s", version,
             variable_or_auto("NCCL_ALGO"), variable_or_auto("NCCL_PROTO"));
}

static uint32_t rank_of(const struct dpb_nccl_group *group, uint32_t position)
{
    return group->ranks ? group->ranks[position] : position;
}

static dpb_status agree(const struct dpb_communicator *communicator,
                        const struct dpb_nccl_group *group, struct card *card)
{
    static uint32_t n_opened;
    const struct dpb_host *host = communicator->host;
    char key[2 * WORD_BYTES], own[TEXT_BYTES];
    size_t bytes = sizeof *card;
    snprintf(key, sizeof key, "nccl/%s/%u", group->name, n_opened++);
    write_settings(own, sizeof own);
    if (group->rank == 0) {
        memset(card, 0, sizeof *card);
        memcpy(card->settings, own, sizeof own);
        ncclResult_t code = ncclGetUniqueId(&card->id);
        if (code != ncclSuccess)
            return fail(communicator, "ncclGetUniqueId", code, NULL);
        return host->store->put(key, card, sizeof *card);
    }
    DPB_TRY(host->store->get(key, card, &bytes, 0));
    if (bytes != sizeof *card || !memchr(card->settings, 0, sizeof card->settings) ||
        strcmp(card->settings, own) != 0)
        return host->fail(DPB_UNSUPPORTED, "rank %u has %.*s, and rank %u has %s",
                          rank_of(group, 0), (int)sizeof card->settings - 1, card->settings,
                          rank_of(group, group->rank), own);
    return DPB_OK;
}

dpb_status communicator_open(const struct dpb_nccl_options *options,
                             const struct dpb_nccl_group *group, struct dpb_communicator *made)
{
    static const char call[] = "ncclCommInitRankConfig";
    const struct dpb_wait what = {
        .bucket = UINT64_MAX, .peer = UINT32_MAX, .purpose = "NCCL to connect the workers"};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct card card;
    *made = (struct dpb_communicator){.host = nccl_host};
    DPB_TRY(agree(made, group, &card));
    config.blocking = 0;
    config.commName = "dpbench";
    if (options->min_ctas > 0)
        config.minCTAs = (int)options->min_ctas;
    /* NCCL refuses a least number without a greatest. */
    if (options->max_ctas > 0 || options->min_ctas > 0)
        config.maxCTAs = options->max_ctas > 0 ? (int)options->max_ctas : MOST_CTAS;
    ncclResult_t code = ncclCommInitRankConfig(&made->nccl, (int)group->n_ranks, card.id,
                                               (int)group->rank, &config);
    return finish(made, call, code, &what);
}

/* ---- sums ---------------------------------------------------------------------------------- */

ncclDataType_t nccl_type_of(dpb_dtype type)
{
    switch (type) {
    case DPB_FP64:
        return ncclFloat64;
    case DPB_FP32:
        return ncclFloat32;
    case DPB_BF16:
        return ncclBfloat16;
    case DPB_FP16:
        return ncclFloat16;
    default:
        return ncclNumTypes;
    }
}

static char *element_at(const struct dpb_nccl_range *range, uint64_t i)
{
    return (char *)range->memory + i * dpb_dtype_size(range->type);
}

dpb_status communicator_all_reduce(const struct dpb_communicator *communicator,
                                   struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                   const struct dpb_wait *what)
{
    ncclResult_t code =
        ncclAllReduce(range->memory, range->memory, range->n, nccl_type_of(range->type), ncclSum,
                      communicator->nccl, (cudaStream_t)queue);
    return finish(communicator, "ncclAllReduce", code, what);
}

/* This rank's number, and whether every rank has a slice, of equal length. */
static dpb_status look_at_slices(const struct dpb_communicator *communicator,
                                 const struct dpb_nccl_range *range, uint32_t n_slices, int *rank,
                                 bool *equal)
{
    int n_ranks = 0;
    ncclResult_t code = ncclCommCount(communicator->nccl, &n_ranks);
    if (code == ncclSuccess)
        code = ncclCommUserRank(communicator->nccl, rank);
    if (code != ncclSuccess)
        return fail(communicator, "ncclCommCount", code, NULL);
    *equal = (uint32_t)n_ranks == n_slices && range->n % n_slices == 0;
    return DPB_OK;
}

/* For a call within a group: its work continues behind the group's end. */
static bool is_under_way(ncclResult_t code)
{
    return code == ncclSuccess || code == ncclInProgress;
}

/* A call for one slice, of rank `of`. */
typedef ncclResult_t slice_call(void *memory, size_t n, ncclDataType_t type, int of,
                                ncclComm_t nccl, cudaStream_t stream);

static ncclResult_t reduce_slice(void *memory, size_t n, ncclDataType_t type, int of,
                                 ncclComm_t nccl, cudaStream_t stream)
{
    return ncclReduce(memory, memory, n, type, ncclSum, of, nccl, stream);
}

static ncclResult_t gather_slice(void *memory, size_t n, ncclDataType_t type, int of,
                                 ncclComm_t nccl, cudaStream_t stream)
{
    return ncclBroadcast(memory, memory, n, type, of, nccl, stream);
}

/* A group that has begun is ended, whatever fails in it. */
static dpb_status for_slices(const struct dpb_communicator *communicator, slice_call *call,
                             struct dpb_queue *queue, const struct dpb_nccl_range *range,
                             uint32_t n_slices, const struct dpb_wait *what)
{
    ncclResult_t code = ncclGroupStart();
    if (code != ncclSuccess)
        return fail(communicator, "ncclGroupStart", code, what);
    for (uint32_t i = 0; i < n_slices && is_under_way(code); i++) {
        struct dpb_range slice = dpb_slice_of(range->n, i, n_slices);
        if (slice.end > slice.begin)
            code = call(element_at(range, slice.begin), slice.end - slice.begin,
                        nccl_type_of(range->type), (int)i, communicator->nccl, (cudaStream_t)queue);
    }
    ncclResult_t ended = ncclGroupEnd();
    return finish(communicator, "a group of NCCL's", is_under_way(code) ? ended : code, what);
}

dpb_status communicator_reduce_slices(const struct dpb_communicator *communicator,
                                      struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                      uint32_t n_slices, const struct dpb_wait *what)
{
    uint64_t n = range->n / n_slices;
    bool equal;
    int rank;
    DPB_TRY(look_at_slices(communicator, range, n_slices, &rank, &equal));
    if (!equal)
        return for_slices(communicator, reduce_slice, queue, range, n_slices, what);
    ncclResult_t code = ncclReduceScatter(range->memory, element_at(range, (uint64_t)rank * n), n,
                                          nccl_type_of(range->type), ncclSum, communicator->nccl,
                                          (cudaStream_t)queue);
    return finish(communicator, "ncclReduceScatter", code, what);
}

dpb_status communicator_gather_slices(const struct dpb_communicator *communicator,
                                      struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                      uint32_t n_slices, const struct dpb_wait *what)
{
    uint64_t n = range->n / n_slices;
    bool equal;
    int rank;
    DPB_TRY(look_at_slices(communicator, range, n_slices, &rank, &equal));
    if (!equal)
        return for_slices(communicator, gather_slice, queue, range, n_slices, what);
    ncclResult_t code =
        ncclAllGather(element_at(range, (uint64_t)rank * n), range->memory, n,
                      nccl_type_of(range->type), communicator->nccl, (cudaStream_t)queue);
    return finish(communicator, "ncclAllGather", code, what);
}

/* ---- the end ------------------------------------------------------------------------------- */

void communicator_abort(struct dpb_communicator *communicator)
{
    if (communicator->nccl)
        ncclCommAbort(communicator->nccl);
    communicator->nccl = NULL;
}

/* NCCL's work behind the last kernels, such as sends to a slower peer, must end before the
 * communicator may go. */
void communicator_close(struct dpb_communicator *communicator)
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
