/*
 * nccl.cc - a NCCL without a GPU, for tests of comm nccl and hierarchical: as much of it as they
 * call. It really sums between processes, through a memory file of the process that made the unique
 * id, which is gone with that process. What it is given goes into the streams of runtime.cc, and is
 * done there when all ranks have come to it; an element's sum is begun at another rank in each part
 * of the range, as a ring does, and rounded after every addition, so that it is not that of the
 * ranks' order.
 *
 * Captured in a graph, a collective is one for every launch. The ranks must all have called one of
 * the same size before, uncaptured, and be told that the call is over before the capture ends. To
 * finalize, destroy or abort a communicator of which a graph holds work would never return: it ends
 * the process.
 *
 * As NCCL it does not block: a call is over, and its work in the stream, only when
 * ncclCommGetAsyncError has said so (after a few looks, drawn at random), and a call before that is
 * an error. It refuses what NCCL refuses: ranks that are out of range or come twice, two ranks on
 * one GPU of one host (NCCL_HOSTID names another), a least number of thread blocks without a
 * greatest. Ranks that disagree about a collective never finish it, and see an error. What an abort
 * cuts off leaves NaN.
 *
 * DPB_STAND_IN_NCCL_FAIL=RANK:N: the N-th collective (from 1; 0: connecting) of that rank fails
 * behind its call. DPB_STAND_IN_NCCL_HANG=RANK:N: it never begins, and nothing says so.
 * DPB_STAND_IN_NCCL_WRONG=MISTAKE:N: from the N-th on sums are wrong on every rank (left_out: a
 * rank keeps what it gave; twice; one_element), or on the last alone (diverged: by 1e-6). kept: the
 * last rank takes nothing of what others give it unsummed.
 * DPB_STAND_IN_NCCL_SAY=1: every rank says on stderr what it was configured with.
 */
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_fp16.h>
#include <fcntl.h>
#include <memory>
#include <deque>
#include <nccl.h>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "kernel_host.h"

namespace
{
enum { MOST_RANKS = 64, MOST_CTAS = 64, TEXT_BYTES = 128 };
const size_t SLOT_BYTES = size_t(1) << 30; /* of a rank; what is not written takes no memory */

/* ---- what the ranks share ------------------------------------------------------------------ */

struct seat {
    std::atomic<uint32_t> state; /* 0: free, 1: being taken, 2: what follows is there */
    std::atomic<uint64_t> given,
        taken; /* collectives whose data lie in the slot; that were summed */
    uint32_t n_ranks;
    char host[TEXT_BYTES], bus[32];
    size_t count; /* of the one that is given */
    int kind, type, op, root;
};

struct board {
    seat seats[MOST_RANKS];
};

size_t file_bytes(int n_ranks)
{
    return sizeof(board) + (size_t)n_ranks * SLOT_BYTES;
}

/* A unique id names the file. */
struct address {
    pid_t process;
    int file;
    uint64_t serial;
};

/* ---- a communicator ------------------------------------------------------------------------ */

struct state {
    int rank = 0, n = 0;
    board *shared = nullptr;
    ncclResult_t result = ncclInProgress; /* as ncclCommGetAsyncError tells it */
    std::string message;
    bool connected = false, finalizing = false;
    bool aborted = false;
    std::function<void()> launch; /* waits for the looks that it takes */
    unsigned looks = 0;
    uint64_t n_given = 0;
    std::set<std::tuple<int, size_t, int>> called; /* kind, count and type of those not captured */
    std::vector<std::weak_ptr<void>> in_graphs;

    ~state()
    {
        if (shared)
            munmap(shared, file_bytes(n));
    }
    char *slot(int of) const
    {
        return reinterpret_cast<char *>(shared) + sizeof(board) + (size_t)of * SLOT_BYTES;
    }
    ncclResult_t fail(ncclResult_t code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
};

std::string last_message; /* of calls without a communicator */
std::mt19937 generator(2);

ncclResult_t state::fail(ncclResult_t code, const char *format, ...)
{
    char text[256];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    result = code;
    last_message = message = text;
    return code;
}

/* Whether `variable` names this collective of this rank. */
bool is_named(const char *variable, int rank, uint64_t number)
{
    const char *text = getenv(variable);
    int of = -1;
    unsigned long long at = 0;
    return text && sscanf(text, "%d:%llu", &of, &at) == 2 && of == rank && at == number;
}

bool fails_at(int rank, uint64_t number)
{
    return is_named("DPB_STAND_IN_NCCL_FAIL", rank, number);
}

bool mistakes(const char *what, uint64_t number)
{
    const char *text = getenv("DPB_STAND_IN_NCCL_WRONG");
    const size_t length = strlen(what);
    return text && strncmp(text, what, length) == 0 && text[length] == ':' &&
           number >= strtoull(text + length + 1, nullptr, 10);
}

const char *variable(const char *name, const char *otherwise)
{
    const char *text = getenv(name);
    return text ? text : otherwise;
}
} // namespace

struct ncclComm {
    std::shared_ptr<state> s; /* streams may outlive the communicator */
};

namespace
{
/* ---- connecting ---------------------------------------------------------------------------- */

ncclResult_t take_seat(state &s)
{
    seat &own = s.shared->seats[s.rank];
    uint32_t nobody = 0;
    int id = 0;
    if (!own.state.compare_exchange_strong(nobody, 1))
        return s.fail(ncclInvalidUsage, "rank %d came twice", s.rank);
    cudaGetDevice(&id);
    cudaDeviceGetPCIBusId(own.bus, (int)sizeof own.bus, id);
    snprintf(own.host, sizeof own.host, "%s", variable("NCCL_HOSTID", "this host"));
    own.n_ranks = (uint32_t)s.n;
    own.state.store(2);
    return ncclSuccess;
}

/* Once all are there. */
void connect(state &s)
{
    const seat &own = s.shared->seats[s.rank];
    if (fails_at(s.rank, 0)) {
        s.fail(ncclSystemError, "an error of the stand-in's, while connecting");
        return;
    }
    for (int rank = 0; rank < s.n; rank++) {
        if (s.shared->seats[rank].state != 2)
            return;
    }
    for (int rank = 0; rank < s.n; rank++) {
        const seat &other = s.shared->seats[rank];
        if (other.n_ranks != own.n_ranks) {
            s.fail(ncclInvalidUsage, "rank %d is one of %u, rank %d one of %u", s.rank, own.n_ranks,
                   rank, other.n_ranks);
            return;
        }
        if (rank != s.rank && strcmp(own.host, other.host) == 0 &&
            strcmp(own.bus, other.bus) == 0) {
            s.fail(ncclInvalidUsage,
                   "Duplicate GPU detected : rank %d and rank %d both on CUDA device %s", s.rank,
                   rank, own.bus);
            return;
        }
    }
    s.connected = true;
    s.result = ncclSuccess;
}

void say(const state &s, const ncclConfig_t *config)
{
    if (!getenv("DPB_STAND_IN_NCCL_SAY"))
        return;
    fprintf(stderr, "stand-in NCCL: rank %d of %d, CTAs %d to %d, algo %s, proto %s, host %s\n",
            s.rank, s.n, config->minCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->minCTAs,
            config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs,
            variable("NCCL_ALGO", "any"), variable("NCCL_PROTO", "any"),
            variable("NCCL_HOSTID", "this"));
}

bool valid(const ncclConfig_t *config)
{
    const bool least = config->minCTAs != NCCL_CONFIG_UNDEF_INT;
    const bool most = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
    return config->magic == 0xcafebeef && config->blocking == 0 &&
           (!least || (config->minCTAs > 0 && config->minCTAs <= MOST_CTAS)) &&
           (!most || (config->maxCTAs > 0 && config->maxCTAs <= MOST_CTAS)) &&
           config->minCTAs <= config->maxCTAs;
}

bool open_file(const ncclUniqueId &id, state &s)
{
    address where;
    char path[64];
    memcpy(&where, id.internal, sizeof where);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)where.process, where.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return false;
    void *memory = ftruncate(file, (off_t)file_bytes(MOST_RANKS)) == 0
                       ? mmap(nullptr, file_bytes(s.n), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                       : MAP_FAILED;
    close(file);
    if (memory != MAP_FAILED)
        s.shared = static_cast<board *>(memory);
    return memory != MAP_FAILED;
}

/* ---- sums ---------------------------------------------------------------------------------- */

size_t size_of(ncclDataType_t type)
{
    return type == ncclFloat64                           ? 8
           : type == ncclFloat32                         ? 4
           : type == ncclBfloat16 || type == ncclFloat16 ? 2
                                                         : 0;
}

float load(const void *from, size_t i, ncclDataType_t type)
{
    if (type == ncclFloat32)
        return static_cast<const float *>(from)[i];
    if (type == ncclFloat16)
        return __half2float(static_cast<const __half *>(from)[i]);
    uint32_t bits = (uint32_t) static_cast<const uint16_t *>(from)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest even. NaN stays one. */
uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void store(void *to, size_t i, ncclDataType_t type, float value)
{
    if (type == ncclFloat32)
        static_cast<float *>(to)[i] = value;
    else if (type == ncclFloat16)
        static_cast<__half *>(to)[i] = __float2half_rn(value);
    else
        static_cast<uint16_t *>(to)[i] = to_bf16(value);
}

float rounded(float value, ncclDataType_t type)
{
    float place;
    store(&place, 0, type, value);
    return load(&place, 0, type);
}

/* Of `count` elements from `first` on of the `all` that every rank gave. */
void sum(const state &s, void *to, size_t first, size_t count, size_t all, ncclDataType_t type)
{
    for (size_t i = 0; i < count; i++) {
        const int begin = (int)((first + i) * (size_t)s.n / all);
        float total = load(s.slot(begin), first + i, type);
        for (int k = 1; k < s.n; k++) {
            total += load(s.slot((begin + k) % s.n), first + i, type);
            total = rounded(total, type);
        }
        store(to, i, type, total);
    }
}

/* In the sums of `count` elements from `first` on. */
void make_mistakes(const state &s, void *to, size_t first, size_t count, ncclDataType_t type,
                   uint64_t number)
{
    const size_t size = size_of(type);
    if (mistakes("left_out", number))
        memcpy(to, static_cast<char *>(s.slot(s.rank)) + first * size, count * size);
    if (count > 0 && mistakes("one_element", number))
        store(to, count / 2, type, load(to, count / 2, type) + 1.0f);
    for (size_t i = 0; mistakes("twice", number) && i < count; i++)
        store(to, i, type, 2.0f * load(to, i, type));
    for (size_t i = 0; s.rank == s.n - 1 && mistakes("diverged", number) && i < count; i++)
        store(to, i, type, (1.0f + 1e-6f) * load(to, i, type));
}

/* ---- the collective, in a stream ------------------------------------------------------------- */

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST };

struct collective {
    enum kind kind;
    const void *from;
    void *to;
    size_t count; /* as the call was given it */
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    uint64_t number; /* from 1 */
};

/* Elements that a rank gives, and gets. */
size_t given_by(const state &s, const collective &c, int rank)
{
    return c.kind == REDUCE_SCATTER                ? c.count * (size_t)s.n
           : c.kind == BROADCAST && rank != c.root ? 0
                                                   : c.count;
}

size_t taken_by(const state &s, const collective &c, int rank)
{
    return c.kind == ALL_GATHER                 ? c.count * (size_t)s.n
           : c.kind == REDUCE && rank != c.root ? 0
                                                : c.count;
}

bool failed(const state &s)
{
    return s.result != ncclSuccess && s.result != ncclInProgress;
}

/* Nobody reads what this rank gave to the last one. */
bool may_give(state &s, const collective &c)
{
    bool is_free = true;
    if (s.aborted)
        return true;
    if (!failed(s) && fails_at(s.rank, c.number))
        s.fail(ncclSystemError, "an error of the stand-in's, in collective %llu",
               (unsigned long long)c.number);
    if (failed(s) || is_named("DPB_STAND_IN_NCCL_HANG", s.rank, c.number))
        return false;
    for (int rank = 0; rank < s.n; rank++)
        is_free = is_free && s.shared->seats[rank].taken >= c.number - 1;
    return is_free;
}

void give(const state &s, const collective &c)
{
    seat &own = s.shared->seats[s.rank];
    if (s.aborted)
        return;
    memcpy(s.slot(s.rank), c.from, given_by(s, c, s.rank) * size_of(c.type));
    own.count = c.count;
    own.kind = c.kind;
    own.type = c.type;
    own.op = c.op;
    own.root = c.root;
    own.given = c.number;
}

bool all_gave(state &s, const collective &c)
{
    if (s.aborted)
        return true;
    if (failed(s))
        return false;
    for (int rank = 0; rank < s.n; rank++) {
        const seat &other = s.shared->seats[rank];
        if (other.given < c.number)
            return false;
        if (other.count != c.count || other.kind != c.kind || other.type != c.type ||
            other.op != c.op || other.root != c.root) {
            s.fail(ncclInvalidUsage,
                   "collective %llu: kind %d of %zu elements of type %d here, %d of %zu of %d on "
                   "rank %d",
                   (unsigned long long)c.number, c.kind, c.count, c.type, other.kind, other.count,
                   other.type, rank);
            return false;
        }
    }
    return true;
}

void take(const state &s, const collective &c)
{
    const size_t n = taken_by(s, c, s.rank), bytes = c.count * size_of(c.type);
    if (s.aborted) {
        memset(c.to, 0xff, n * size_of(c.type));
        return;
    }
    if (c.kind == ALL_REDUCE || c.kind == REDUCE)
        sum(s, c.to, 0, n, c.count, c.type);
    else if (c.kind == REDUCE_SCATTER)
        sum(s, c.to, (size_t)s.rank * n, n, n * (size_t)s.n, c.type);
    const bool keeps = s.rank == s.n - 1 && mistakes("kept", c.number);
    if (c.kind == BROADCAST && !keeps)
        memcpy(c.to, s.slot(c.root), bytes);
    for (int rank = 0; c.kind == ALL_GATHER && !keeps && rank < s.n; rank++)
        memcpy(static_cast<char *>(c.to) + (size_t)rank * bytes, s.slot(rank), bytes);
    if (c.kind != ALL_GATHER && c.kind != BROADCAST)
        make_mistakes(s, c.to, c.kind == REDUCE_SCATTER ? (size_t)s.rank * n : 0, n, c.type,
                      c.number);
    s.shared->seats[s.rank].taken = c.number;
}

void enqueue(const std::shared_ptr<state> &s, const collective &c, cudaStream_t stream)
{
    stand_in_enqueue_when(
        stream, [s, c] { return may_give(*s, c); }, [s, c] { give(*s, c); });
    stand_in_enqueue_when(
        stream, [s, c] { return all_gave(*s, c); }, [s, c] { take(*s, c); });
}

/* The same in a graph, whose launches have a number each. */
void enqueue_captured(const std::shared_ptr<state> &s, const collective &c, cudaStream_t stream)
{
    const auto numbers = std::make_shared<std::deque<uint64_t>>();
    const auto held = std::make_shared<int>();
    const auto now = [c, numbers] {
        collective one = c;
        one.number = numbers->front();
        return one;
    };
    s->in_graphs.push_back(held);
    stand_in_hold(stream, held, [s, numbers] { numbers->push_back(++s->n_given); });
    stand_in_enqueue_when(
        stream, [s, now] { return may_give(*s, now()); }, [s, now] { give(*s, now()); });
    stand_in_enqueue_when(
        stream, [s, now] { return all_gave(*s, now()); },
        [s, now, numbers] {
            take(*s, now());
            numbers->pop_front();
        });
}

void expect_no_graph(const state &s, const char *call)
{
    for (const auto &one : s.in_graphs) {
        if (one.expired())
            continue;
        fprintf(stderr, "stand-in NCCL: %s waits for a graph that nobody destroys\n", call);
        abort();
    }
}

ncclResult_t look(state &s)
{
    if (s.result != ncclInProgress)
        return s.result;
    if (!s.connected) {
        connect(s);
    } else if (s.looks > 0) {
        s.looks--;
    } else {
        if (s.launch)
            s.launch();
        s.launch = nullptr;
        s.result = ncclSuccess;
    }
    return s.result;
}

/* NCCL's answer to a call before the last one is over. */
ncclResult_t ensure_ready(state &s)
{
    if (s.result == ncclInProgress)
        return s.fail(ncclInvalidArgument, "a call before the last one has returned ncclSuccess");
    return s.result;
}

ncclResult_t begin(state &s, std::function<void()> launch)
{
    s.launch = launch;
    s.looks = generator() % 4;
    return s.result = ncclInProgress;
}

/* Calls between ncclGroupStart and ncclGroupEnd, all of one communicator. */
bool grouping;
ncclComm_t group_of;
std::vector<std::function<void()>> group;

ncclResult_t collect(ncclComm_t comm, collective c, cudaStream_t stream)
{
    if (!comm)
        return ncclInvalidArgument;
    state &s = *comm->s;
    if (ncclResult_t code = ensure_ready(s))
        return code;
    const size_t most = c.count * (size_t)s.n * size_of(c.type);
    const bool sums = c.kind != ALL_GATHER && c.kind != BROADCAST;
    if (s.finalizing || c.op != ncclSum || size_of(c.type) == 0 || most > SLOT_BYTES ||
        (sums && c.type == ncclFloat64) || c.root < 0 || c.root >= s.n ||
        (grouping && group_of && group_of != comm))
        return s.fail(ncclInvalidArgument, "the stand-in does not do that");
    const uint64_t capture = stand_in_capture(stream);
    const auto which = std::make_tuple((int)c.kind, c.count, (int)c.type);
    stand_in_trace("NCCL");
    if (capture && s.called.count(which) == 0)
        return s.fail(ncclInvalidUsage, "a collective is captured that was never called before");
    if (!capture) {
        s.called.insert(which);
        c.number = ++s.n_given;
    }
    std::shared_ptr<state> shared = comm->s;
    const auto launch = [shared, c, stream, capture] {
        if (stand_in_capture(stream) != capture) {
            fprintf(stderr, "stand-in NCCL: the capture has ended, and a call in it is not over\n");
            abort();
        }
        (capture ? enqueue_captured : enqueue)(shared, c, stream);
    };
    if (!grouping)
        return begin(s, launch);
    group_of = comm;
    group.push_back(launch);
    return ncclSuccess;
}
} // namespace

/* ---- NCCL's functions ---------------------------------------------------------------------- */

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* The file stays open as long as the process. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static uint64_t serial;
    address made = {getpid(), memfd_create("stand-in-nccl", MFD_CLOEXEC), ++serial};
    if (made.file < 0)
        return ncclSystemError;
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &made, sizeof made);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    auto s = std::make_shared<state>();
    s->rank = rank;
    s->n = n_ranks;
    *comm = nullptr;
    if (n_ranks < 1 || n_ranks > MOST_RANKS || rank < 0 || rank >= n_ranks)
        return s->fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, n_ranks);
    if (!valid(config))
        return s->fail(ncclInvalidArgument, "Invalid config");
    say(*s, config);
    if (!open_file(id, *s))
        return s->fail(ncclSystemError, "the process that made the unique id is gone");
    if (ncclResult_t code = take_seat(*s))
        return code;
    *comm = new ncclComm{s};
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!comm)
        return ncclInvalidArgument;
    *error = look(*comm->s);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *n)
{
    *n = comm->s->n;
    return ensure_ready(*comm->s);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    *rank = comm->s->rank;
    return ensure_ready(*comm->s);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collect(comm, {ALL_REDUCE, from, to, count, type, op, 0, 0}, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collect(comm, {REDUCE_SCATTER, from, to, count, type, op, 0, 0}, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return collect(comm, {ALL_GATHER, from, to, count, type, ncclSum, 0, 0}, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return collect(comm, {REDUCE, from, to, count, type, op, root, 0}, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return collect(comm, {BROADCAST, from, to, count, type, ncclSum, root, 0}, stream);
}

ncclResult_t ncclGroupStart()
{
    if (grouping)
        return ncclInvalidUsage;
    grouping = true;
    group_of = nullptr;
    group.clear();
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (!grouping)
        return ncclInvalidUsage;
    grouping = false;
    if (!group_of)
        return ncclSuccess;
    const auto calls = group;
    return begin(*group_of->s, [calls] {
        for (const auto &call : calls)
            call();
    });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (ncclResult_t code = ensure_ready(*comm->s))
        return code;
    if (comm->s->finalizing)
        return comm->s->fail(ncclInvalidArgument, "finalized twice");
    expect_no_graph(*comm->s, "ncclCommFinalize");
    comm->s->finalizing = true;
    return begin(*comm->s, nullptr);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    expect_no_graph(*comm->s, "ncclCommDestroy");
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (comm) {
        expect_no_graph(*comm->s, "ncclCommAbort");
        comm->s->aborted = true;
    }
    delete comm;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclSystemError ? "unhandled system error (run with NCCL_DEBUG=INFO for details)"
           : code == ncclInvalidArgument ? "invalid argument (run with NCCL_DEBUG=WARN for details)"
           : code == ncclInvalidUsage    ? "invalid usage (run with NCCL_DEBUG=WARN for details)"
                                         : "an error of the stand-in's NCCL";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->s->message.c_str() : last_message.c_str();
}
}
