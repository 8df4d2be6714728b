/*
 * mpi.c - libdpbench-mpi.so: MPI in this process, with its one initialisation and its versions, and
 * sums by MPI's collectives. See lib/object/mpi.h.
 */
#include <assert.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "lib/object/mpi.h"
#include "lib/object/object.h"
#include "lib/strategy/slices.h"

static const struct dpb_host *host;

/* ---- initialised once, finalised once after the last communicator --------------------------- */

static bool initialised, healthy;

static dpb_status fail(dpb_status status, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return host->fail(status, "%s failed: %s", what, text);
}

/* MPI_Finalize is collective: it would wait for ever if this process, or a process that this one
 * waited for, has failed. */
static void finalise(int exit_code, void *unused)
{
    (void)unused;
    if (healthy && exit_code == 0)
        MPI_Finalize();
}

static dpb_status initialise(int wanted)
{
    static const char *const levels[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    static int provided;
    if (!initialised) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
        if (code != MPI_SUCCESS)
            return fail(DPB_FAILED, code, "MPI_Init_thread");
        initialised = true;
        on_exit(finalise, NULL);
    }
    if (provided < wanted)
        return host->fail(DPB_UNSUPPORTED,
                          "this MPI library offers MPI_THREAD_%s, and run.comm_cores = 1 needs "
                          "MPI_THREAD_SERIALIZED; set run.comm_cores = 0",
                          levels[provided - MPI_THREAD_SINGLE]);
    return DPB_OK;
}

/* Ranks are numbered by the launcher, for MPI as for dpbench. */
static dpb_status check_world(const struct dpb_comm_args *job)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if ((uint32_t)size == job->n_workers && (uint32_t)rank == job->rank)
        return DPB_OK;
    return host->fail(DPB_FAILED,
                      "MPI says that this is rank %d of %d, dpbench that it is rank %u of %u: "
                      "is this the library of the mpirun that started the job?",
                      rank, size, job->rank, job->n_workers);
}

static dpb_status process_open(const struct dpb_comm_args *job)
{
    DPB_TRY(initialise(job->comm_cores > 0 ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED));
    DPB_TRY(check_world(job));
    healthy = false;
    return DPB_OK;
}

static void process_close(void)
{
    healthy = true;
}

/* ---- versions ------------------------------------------------------------------------------ */

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)
#if defined(OPEN_MPI)
#define BUILT                                                                               \
    "Open MPI " VALUE_OF(OMPI_MAJOR_VERSION) "." VALUE_OF(OMPI_MINOR_VERSION) "." VALUE_OF( \
        OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define BUILT "MPICH " MPICH_VERSION
#else
#define BUILT "MPI " VALUE_OF(MPI_VERSION) "." VALUE_OF(MPI_SUBVERSION)
#endif
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
#define BUILT_CUDA "yes"
#else
#define BUILT_CUDA "no"
#endif

static char loaded_version[MPI_MAX_LIBRARY_VERSION_STRING];
static char loaded_cuda[8];

static const struct dpb_library versions[] = {
    {.name = "MPI", .built = BUILT, .loaded = loaded_version},
    {.name = "CUDA-aware MPI", .built = BUILT_CUDA, .loaded = loaded_cuda},
    {.name = NULL}};

/* Both may be asked before MPI is initialised. */
static void look_at_library(void)
{
    int length;
    MPI_Get_library_version(loaded_version, &length);
    loaded_version[strcspn(loaded_version, ",\n")] = '\0'; /* "Open MPI v4.1.4, package: ..." */
#ifdef MPIX_CUDA_AWARE_SUPPORT
    snprintf(loaded_cuda, sizeof loaded_cuda, "%s", MPIX_Query_cuda_support() ? "yes" : "no");
#else
    snprintf(loaded_cuda, sizeof loaded_cuda, "?");
#endif
}

/* ---- sums ---------------------------------------------------------------------------------- */

struct sum {
    MPI_Request request;
    uint64_t n;
    int64_t begun_ns;
};

#define KIND(CALL, PURPOSE)                   \
    {                                         \
        CALL, "MPI_Test of an " CALL, PURPOSE \
    }
static const struct {
    const char *call, *test, *purpose;
} kinds[] = {[DPB_MPI_KIND_SUM] = KIND("MPI_Iallreduce", "MPI's all-reduce"),
             [DPB_MPI_KIND_SUM_SLICES] = KIND("MPI_Ireduce_scatter", "MPI's reduce-scatter"),
             [DPB_MPI_KIND_GIVE_SLICES] = KIND("MPI_Iallgatherv", "MPI's all-gather"),
             [DPB_MPI_KIND_GATHER] = KIND("MPI_Iallgather", "MPI's all-gather"),
             [DPB_MPI_KIND_REDUCE_SCATTER] =
                 KIND("MPI_Ireduce_scatter_block", "MPI's reduce-scatter"),
             [DPB_MPI_KIND_ALL_GATHER] = KIND("MPI_Iallgather", "MPI's all-gather"),
             [DPB_MPI_KIND_BROADCAST] = KIND("MPI_Ibcast", "MPI's broadcast"),
             [DPB_MPI_KIND_ALL_TO_ALL] = KIND("MPI_Ialltoall", "MPI's all-to-all")};

/* The slices of n elements, by position. MPI reads both arrays until the call that got them is
 * complete. */
struct cut {
    uint64_t n;
    int *lengths, *begins;
};

struct mpi_sums {
    struct dpb_sums base;
    struct dpb_mpi_sums_args args;
    MPI_Comm comm; /* MPI_COMM_NULL: of no group */
    MPI_Op op;
    MPI_Datatype type;
    struct sum *sums; /* by bucket */
    struct cut cuts[2];
    int *places;       /* the cuts' */
    MPI_Datatype part; /* a member's elements of a gather, and the way to the next member's */
    uint64_t part_elements;
    int64_t waiting_ns; /* since when for the oldest; 0: nobody waits */
    dpb_status status;
};

/* bf16 and fp16 are no types of MPI's: 16 bits each, summed as everywhere. */
static void sum_halves(dpb_dtype type, const void *other, void *into, int n)
{
    void *const dst[] = {into};
    const void *const sources[] = {into, other};
    host->vec->sum(type, dst, 1, sources, 2, (uint64_t)n);
}

/* NOLINTBEGIN(readability-non-const-parameter): their type is MPI_User_function */
static void sum_bf16(void *other, void *into, int *n, MPI_Datatype *type)
{
    (void)type;
    sum_halves(DPB_BF16, other, into, *n);
}

static void sum_fp16(void *other, void *into, int *n, MPI_Datatype *type)
{
    (void)type;
    sum_halves(DPB_FP16, other, into, *n);
}
/* NOLINTEND(readability-non-const-parameter) */

/* ---- an exchange --------------------------------------------------------------------------- */

static const struct cut *cut_of(struct mpi_sums *sums, uint64_t n)
{
    const uint32_t n_members = sums->args.n_members;
    const bool second = sums->cuts[0].n != 0 && sums->cuts[0].n != n;
    struct cut *cut = &sums->cuts[second];
    assert(cut->n == 0 || cut->n == n);
    if (cut->n == n)
        return cut;
    cut->n = n;
    cut->lengths = sums->places + (second ? 2 * n_members : 0);
    cut->begins = cut->lengths + n_members;
    for (uint32_t i = 0; i < n_members; i++) {
        const struct dpb_range slice = dpb_slice_of(n, i, n_members);
        cut->lengths[i] = (int)(slice.end - slice.begin);
        cut->begins[i] = (int)slice.begin;
    }
    return cut;
}

/* Gathers that have begun go on with a type that is freed (MPI 4.0, 5.1.9). */
static int make_part(struct mpi_sums *sums, uint64_t n)
{
    const MPI_Aint stride_bytes = (MPI_Aint)(sums->args.stride * dpb_dtype_size(sums->args.type));
    MPI_Datatype elements;
    if (sums->part_elements == n)
        return MPI_SUCCESS;
    if (sums->part != MPI_DATATYPE_NULL)
        MPI_Type_free(&sums->part);
    sums->part_elements = n;
    int code = MPI_Type_contiguous((int)n, sums->type, &elements);
    if (code == MPI_SUCCESS)
        code = MPI_Type_create_resized(elements, 0, stride_bytes, &sums->part);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(&sums->part);
    return code == MPI_SUCCESS ? MPI_Type_free(&elements) : code;
}

static int begin_gather(struct mpi_sums *sums, void *data, uint64_t n, MPI_Request *request)
{
    const int code = make_part(sums, n);
    return code == MPI_SUCCESS ? MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, 1,
                                                sums->part, sums->comm, request)
                               : code;
}

static int begin_cut(struct mpi_sums *sums, void *data, uint64_t n, MPI_Request *request)
{
    const struct cut *cut = cut_of(sums, n);
    if (sums->args.kind == DPB_MPI_KIND_SUM_SLICES)
        return MPI_Ireduce_scatter(MPI_IN_PLACE, data, cut->lengths, sums->type, sums->op,
                                   sums->comm, request);
    return MPI_Iallgatherv(MPI_IN_PLACE, 0, sums->type, data, cut->lengths, cut->begins, sums->type,
                           sums->comm, request);
}

static int begin_sum(struct mpi_sums *sums, uint64_t begin, uint64_t n, MPI_Request *request)
{
    const struct dpb_mpi_sums_args *args = &sums->args;
    const size_t at = begin * dpb_dtype_size(args->type);
    char *data = (char *)args->arena + at;
    const int block = (int)(n / args->n_members);
    switch (args->kind) {
    case DPB_MPI_KIND_SUM:
        return MPI_Iallreduce(MPI_IN_PLACE, data, (int)n, sums->type, sums->op, sums->comm,
                              request);
    case DPB_MPI_KIND_GATHER:
        return begin_gather(sums, data, n, request);
    case DPB_MPI_KIND_REDUCE_SCATTER:
        return MPI_Ireduce_scatter_block(MPI_IN_PLACE, data, block, sums->type, sums->op,
                                         sums->comm, request);
    case DPB_MPI_KIND_ALL_GATHER:
        return MPI_Iallgather(MPI_IN_PLACE, 0, sums->type, data, block, sums->type, sums->comm,
                              request);
    case DPB_MPI_KIND_BROADCAST:
        return MPI_Ibcast(data, (int)n, sums->type, 0, sums->comm, request);
    case DPB_MPI_KIND_ALL_TO_ALL:
        return MPI_Ialltoall(data, block, sums->type, (char *)args->into + at, block, sums->type,
                             sums->comm, request);
    default:
        return begin_cut(sums, data, n, request);
    }
}

static uint64_t name_of(const struct mpi_sums *sums, uint64_t bucket)
{
    return sums->args.names ? sums->args.names[bucket] : bucket;
}

static void post(struct dpb_sums *base, uint64_t begin, uint64_t n)
{
    struct mpi_sums *sums = (struct mpi_sums *)base;
    struct sum *sum = &sums->sums[sums->base.posted];
    assert(sums->base.posted < sums->args.n_buckets);
    if (sums->status != DPB_OK)
        return;
    sum->n = n;
    sum->begun_ns = host->now_ns();
    sum->request = MPI_REQUEST_NULL; /* complete */
    const int code = n > 0 ? begin_sum(sums, begin, n, &sum->request) : MPI_SUCCESS;
    if (code == MPI_SUCCESS)
        sums->base.posted++;
    else
        sums->status = fail(DPB_PEER, code, kinds[sums->args.kind].call);
}

static void report(const struct mpi_sums *sums, const struct sum *sum)
{
    const struct dpb_mpi_sums_args *args = &sums->args;
    host->span(name_of(sums, sums->base.finished), DPB_PHASE_TRANSFER, sum->begun_ns,
               host->now_ns());
    if (args->kind == DPB_MPI_KIND_BROADCAST)
        host->count_bytes(args->position == 0 ? 0 : sum->n * dpb_dtype_size(args->type));
    else if (args->kind != DPB_MPI_KIND_GATHER)
        host->count_bytes(dpb_slices_sent(sum->n, args->position, args->n_members) *
                          dpb_dtype_size(args->type) * (args->kind == DPB_MPI_KIND_SUM ? 2 : 1));
}

static dpb_status move(struct dpb_sums *base, int64_t until_ns, bool *moved)
{
    struct mpi_sums *sums = (struct mpi_sums *)base;
    (void)until_ns;
    *moved = false;
    while (sums->status == DPB_OK && !dpb_sums_idle(&sums->base)) {
        struct sum *oldest = &sums->sums[sums->base.finished];
        int complete = 0, code = MPI_Test(&oldest->request, &complete, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            sums->status = fail(DPB_PEER, code, kinds[sums->args.kind].test);
        if (code != MPI_SUCCESS || !complete)
            break;
        report(sums, oldest);
        sums->base.finished++;
        sums->waiting_ns = 0;
        *moved = true;
    }
    return sums->status;
}

static dpb_status wait(struct dpb_sums *base)
{
    struct mpi_sums *sums = (struct mpi_sums *)base;
    const struct sum *oldest = &sums->sums[sums->base.finished];
    const struct dpb_wait what = {.step = sums->base.step,
                                  .bucket = name_of(sums, sums->base.finished),
                                  .bytes = oldest->n * dpb_dtype_size(sums->args.type),
                                  .peer = UINT32_MAX,
                                  .purpose = kinds[sums->args.kind].purpose};
    DPB_TRY(sums->status);
    assert(!dpb_sums_idle(&sums->base));
    if (sums->waiting_ns == 0)
        host->note("wait_peer", what.bucket, UINT32_MAX);
    DPB_TRY(host->patience(&what, &sums->waiting_ns));
    enum { LOOKS = 16 }; /* a yield takes as long as several */
    bool moved = false;
    for (int i = 0; i < LOOKS && !moved; i++)
        DPB_TRY(move(base, INT64_MAX, &moved));
    if (!moved)
        sched_yield();
    return DPB_OK;
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status sums_check_length(uint64_t n_elements)
{
    if (n_elements <= INT32_MAX)
        return DPB_OK;
    return host->fail(DPB_UNSUPPORTED,
                      "MPI counts elements in 31 bits; take a smaller comm.bucket than %llu "
                      "elements",
                      (unsigned long long)n_elements);
}

static dpb_status make_comm(struct mpi_sums *sums)
{
    const struct dpb_mpi_sums_args *args = &sums->args;
    int group = args->group == DPB_MPI_NO_GROUP ? MPI_UNDEFINED : args->group;
    int code = MPI_Comm_split(MPI_COMM_WORLD, group, (int)args->position, &sums->comm);
    if (code != MPI_SUCCESS)
        return fail(DPB_FAILED, code, "MPI_Comm_split");
    if (sums->comm == MPI_COMM_NULL)
        return DPB_OK;
    code = MPI_Comm_set_errhandler(sums->comm, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS)
        return fail(DPB_FAILED, code, "MPI_Comm_set_errhandler");
    sums->type = args->type == DPB_FP64   ? MPI_DOUBLE
                 : args->type == DPB_FP32 ? MPI_FLOAT
                                          : MPI_UINT16_T;
    sums->op = MPI_SUM;
    if (sums->type == MPI_UINT16_T)
        code = MPI_Op_create(args->type == DPB_BF16 ? sum_bf16 : sum_fp16, 1, &sums->op);
    return code == MPI_SUCCESS ? DPB_OK : fail(DPB_FAILED, code, "MPI_Op_create");
}

/* The bytes of two cuts: a length and a begin for each member. */
static size_t places_bytes(const struct dpb_mpi_sums_args *args)
{
    return args->kind == DPB_MPI_KIND_SUM ? 0 : 4 * args->n_members * sizeof(int);
}

static void destroy(struct dpb_sums *base)
{
    struct mpi_sums *sums = (struct mpi_sums *)base;
    if (!dpb_sums_idle(&sums->base) || sums->status != DPB_OK)
        _exit(1); /* mpi.h; the message is written */
    if (sums->op != MPI_OP_NULL && sums->op != MPI_SUM)
        MPI_Op_free(&sums->op);
    if (sums->part != MPI_DATATYPE_NULL)
        MPI_Type_free(&sums->part);
    if (sums->comm != MPI_COMM_NULL)
        MPI_Comm_free(&sums->comm);
    host->release(sums->places, places_bytes(&sums->args));
    host->release(sums->sums, sums->args.n_buckets * sizeof *sums->sums);
    host->release(sums, sizeof *sums);
}

static const struct dpb_sums_ops ops = {
    .post = post, .move = move, .wait = wait, .destroy = destroy};

static dpb_status sums_create(const struct dpb_mpi_sums_args *args, struct dpb_sums **made)
{
    struct mpi_sums *sums = host->alloc(sizeof *sums);
    if (!sums)
        return DPB_NO_MEMORY;
    sums->base = (struct dpb_sums){.ops = &ops, .window = UINT64_MAX};
    sums->args = *args;
    sums->comm = MPI_COMM_NULL;
    sums->op = MPI_OP_NULL;
    sums->part = MPI_DATATYPE_NULL;
    sums->sums = host->alloc(args->n_buckets * sizeof *sums->sums);
    if (args->kind != DPB_MPI_KIND_SUM)
        sums->places = host->alloc(places_bytes(args));
    const bool has_memory = sums->sums && (sums->places || args->kind == DPB_MPI_KIND_SUM);
    dpb_status status = has_memory ? make_comm(sums) : DPB_NO_MEMORY;
    if (status != DPB_OK) {
        destroy(&sums->base);
        return status;
    }
    *made = &sums->base;
    return DPB_OK;
}

static const struct dpb_mpi_library library = {.versions = versions,
                                               .open = process_open,
                                               .close = process_close,
                                               .check_length = sums_check_length,
                                               .create = sums_create};

DPB_EXPORT dpb_object_entry dpb_mpi_library;

const void *dpb_mpi_library(const struct dpb_host *given)
{
    host = given;
    look_at_library();
    return &library;
}
