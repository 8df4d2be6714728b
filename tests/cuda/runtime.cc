/*
 * runtime.cc - a CUDA runtime without a GPU, for tests of the cuda device and of strategies on it:
 * as much of it as they call. It is a shared library, as CUDA's is: plugins of one process share
 * it. Device memory is the host's, filled with NaN (memory.cc). Streams keep what they are given,
 * and do it in an order that is drawn at random among all that events allow, only when somebody
 * waits or looks: an event that is missing shows. What is captured is kept as branches that events
 * order, and a launch does them in an order drawn anew, beside what other streams do; a branch that
 * is not joined, and calls that a capture forbids to its thread, are refused as CUDA refuses them,
 * and so are events that a capture has recorded and grids that are too large. A launch
 * goes on when its graph is destroyed. What is copied without a stream is in the
 * order of none that is here, and not there before somebody waits for the GPU. Several threads may
 * call: one at a time is served.
 *
 * DPB_STAND_IN_TRACE=FILE: launches of graphs, copies between GPUs, NCCL's collectives as they are
 * called, and calls that wait or look, one a line.
 * DPB_STAND_IN_FAIL=N: the N-th piece of work of a stream fails, and all after it.
 * DPB_STAND_IN_KILL=N: the N-th piece of work, of those that stand_in_worked counts, kills.
 * DPB_STAND_IN_LONG=1: kernels are launched as for arrays of more than 2^31 elements.
 */
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

#include "kernel_host.h"
#include "stand_in.h"

/* ---- streams, events, graphs --------------------------------------------------------------- */

struct CUevent_st {
    uint64_t recorded = 0, done = 0;
    bool timed = true;
    int64_t fired_ns = 0;
    int device = 0;
    uint64_t capture = 0;  /* the number of the one that its last record is of; 0: of none */
    bool by_graph = false; /* its last record is a launched graph's */
};

namespace
{
struct running;

struct op {
    enum kind { WORK, RECORD, EXTERNAL, WAIT, GRAPH } kind;
    std::function<void()> work;
    cudaEvent_t event;
    uint64_t generation;
    std::function<bool()> possible; /* of WORK that waits for another process; empty: at once */
    std::function<void()> launched; /* of WORK in a graph: called by every launch; may be empty */
    std::shared_ptr<running> graph; /* of GRAPH */
};
typedef std::deque<op> branch;

/* A launch of a graph: what is left of it, and the events that were recorded in it. */
struct running {
    std::map<cudaStream_t, branch> branches;
    std::set<std::pair<cudaEvent_t, uint64_t>> recorded;
};
} // namespace

struct CUgraph_st {
    std::map<cudaStream_t, branch> branches;
    std::vector<std::shared_ptr<void>> held; /* as by cudaGraphRetainUserObject */
    cudaStream_t origin = nullptr;
    uint64_t number = 0; /* of captures, from 1 */
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;
    bool broken = false;
};

struct CUgraphExec_st {
    CUgraph_st graph;
};

struct CUstream_st {
    branch ops;
    CUgraph_st *capture = nullptr;
    int device = 0;
    bool late = false; /* nothing is done before somebody waits for it */
    bool destroyed = false;
};

std::recursive_mutex serving;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device;
cudaError_t sticky = cudaSuccess;

long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* Pieces of work done, and those of them that took long because they were told to. */
extern "C" {
uint64_t stand_in_worked, stand_in_taken;
}

namespace
{
std::vector<cudaStream_t> streams;
std::mt19937 generator(1);

int64_t dawdled_ns; /* by work that was told to take long */

int64_t clock_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + dawdled_ns;
}

void fire(cudaEvent_t event, uint64_t generation)
{
    event->done = generation;
    event->fired_ns = clock_ns();
}

void do_work(const op &one)
{
    if (++stand_in_worked == (uint64_t)setting("DPB_STAND_IN_KILL", 0))
        raise(SIGKILL);
    static long left = setting("DPB_STAND_IN_FAIL", -1);
    if (left > 0 && --left == 0)
        sticky = cudaErrorIllegalAddress;
    if (sticky == cudaSuccess)
        one.work();
}

bool advance_any(const std::vector<branch *> &branches, running *graph);

std::vector<branch *> all_branches(running &graph)
{
    std::vector<branch *> all;
    for (auto &one : graph.branches) {
        if (!one.second.empty())
            all.push_back(&one.second);
    }
    return all;
}

bool may_be_done(const op &one, const running *graph)
{
    if (one.kind == op::WAIT)
        return graph ? graph->recorded.count({one.event, one.generation}) > 0
                     : one.event->done >= one.generation;
    return !one.possible || sticky != cudaSuccess || one.possible();
}

/* Does the first of a branch, of a stream or of that graph, if it may be done. A graph is one thing
 * to its stream, over when nothing of it is left. */
bool do_first(branch &ops, running *graph)
{
    if (ops.empty())
        return false;
    op one = ops.front();
    if (one.kind == op::GRAPH && !all_branches(*one.graph).empty())
        return advance_any(all_branches(*one.graph), one.graph.get());
    if (!may_be_done(one, graph))
        return false;
    ops.pop_front();
    if (one.kind == op::WORK)
        do_work(one);
    else if (one.kind == op::EXTERNAL)
        fire(one.event, one.event->recorded);
    else if (one.kind == op::RECORD && graph)
        graph->recorded.insert({one.event, one.generation});
    else if (one.kind == op::RECORD && one.event->done < one.generation)
        fire(one.event, one.generation);
    return true;
}

/* Does one thing of one of the branches, drawn at random; false: there is nothing that can be
 * done. */
bool advance_any(const std::vector<branch *> &branches, running *graph)
{
    size_t first = branches.empty() ? 0 : generator() % branches.size();
    for (size_t i = 0; i < branches.size(); i++) {
        if (do_first(*branches[(first + i) % branches.size()], graph))
            return true;
    }
    return false;
}

std::vector<branch *> all_streams()
{
    std::vector<branch *> all;
    for (cudaStream_t stream : streams) {
        if (!stream->late)
            all.push_back(&stream->ops);
    }
    return all;
}

bool advance_streams()
{
    return advance_any(all_streams(), nullptr);
}

bool waits_for_process(const branch &ops)
{
    if (ops.empty())
        return false;
    if (ops.front().kind != op::GRAPH)
        return (bool)ops.front().possible;
    bool waits = false;
    for (const branch *one : all_branches(*ops.front().graph))
        waits = waits || waits_for_process(*one);
    return waits;
}

/* The same, where nothing can be done before another process has done its part: waits a little.
 * False: there is nothing to wait for. */
bool advance_or_wait(const std::vector<branch *> &branches)
{
    enum { PAUSE_US = 50 };
    if (advance_any(branches, nullptr))
        return true;
    for (const branch *one : branches) {
        if (waits_for_process(*one)) {
            usleep(PAUSE_US);
            return true;
        }
    }
    return false;
}

/* The capture of that number, while it goes on. */
CUgraph_st *capture_of(uint64_t number)
{
    for (cudaStream_t stream : streams) {
        if (stream->capture && stream->capture->number == number)
            return stream->capture;
    }
    return nullptr;
}

void push(cudaStream_t stream, op one)
{
    if (stream->capture)
        stream->capture->branches[stream].push_back(one);
    else
        stream->ops.push_back(one);
}
} // namespace

void trace(const char *what)
{
    static FILE *file =
        getenv("DPB_STAND_IN_TRACE") ? fopen(getenv("DPB_STAND_IN_TRACE"), "w") : nullptr;
    if (file)
        fprintf(file, "%s\n", what);
}

cudaError_t forbidden()
{
    cudaError_t code = cudaSuccess;
    for (cudaStream_t stream : streams) {
        CUgraph_st *capture = stream->capture;
        if (!capture || capture->mode == cudaStreamCaptureModeRelaxed ||
            (capture->mode == cudaStreamCaptureModeThreadLocal &&
             capture->thread != std::this_thread::get_id()))
            continue;
        capture->broken = true;
        code = last_error = cudaErrorStreamCaptureUnsupported;
    }
    return code;
}

cudaStream_t default_stream()
{
    static std::map<int, cudaStream_t> made;
    cudaStream_t &stream = made[current_device];
    if (!stream) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        stream->late = true;
    }
    return stream;
}

void stand_in_enqueue(cudaStream_t stream, std::function<void()> work)
{
    ONE_AT_A_TIME;
    push(stream, {op::WORK, work, nullptr, 0, nullptr, nullptr, nullptr});
}

bool stand_in_long_indices()
{
    return setting("DPB_STAND_IN_LONG", 0) != 0;
}

bool stand_in_launched(cudaStream_t stream, dim3 grid, dim3 block)
{
    const unsigned most_x = 2147483647, most = 65535, threads = 1024;
    if (stream->device != current_device)
        last_error = cudaErrorInvalidResourceHandle;
    else if (grid.x == 0 || grid.x > most_x || grid.y == 0 || grid.y > most || grid.z == 0 ||
             grid.z > most || block.x * block.y * block.z == 0 ||
             block.x * block.y * block.z > threads)
        last_error = cudaErrorInvalidConfiguration;
    else
        return true;
    return false;
}

void stand_in_take(int64_t ns)
{
    ONE_AT_A_TIME;
    dawdled_ns += ns;
    stand_in_taken++;
}

void stand_in_enqueue_when(cudaStream_t stream, std::function<bool()> possible,
                           std::function<void()> work)
{
    ONE_AT_A_TIME;
    push(stream, {op::WORK, work, nullptr, 0, possible, nullptr, nullptr});
}

uint64_t stand_in_capture(cudaStream_t stream)
{
    ONE_AT_A_TIME;
    return stream->capture ? stream->capture->number : 0;
}

void stand_in_hold(cudaStream_t stream, std::shared_ptr<void> object,
                   std::function<void()> launched)
{
    ONE_AT_A_TIME;
    stream->capture->held.push_back(object);
    push(stream, {op::WORK, [] {}, nullptr, 0, nullptr, launched, nullptr});
}

void stand_in_trace(const char *what)
{
    ONE_AT_A_TIME;
    trace(what);
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    if (flags != cudaStreamNonBlocking)
        return cudaErrorInvalidValue;
    ONE_AT_A_TIME;
    *stream = new CUstream_st;
    (*stream)->device = current_device;
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -2;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

/* As with a driver that is older than CUDA 12.8. */
cudaError_t cudaStreamGetDevice(cudaStream_t, int *)
{
    return last_error = cudaErrorCallRequiresNewerDriver;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden())
        return code;
    trace("wait");
    while (stream->late && do_first(stream->ops, nullptr))
        ;
    while (!stream->ops.empty()) {
        if (!advance_or_wait(all_streams())) {
            fprintf(stderr, "stand-in: a stream waits for an event that nothing records\n");
            abort();
        }
    }
    return sticky;
}

/* As CUDA's, it does not wait. A stream with work is freed by a later call, when the work is
 * done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ONE_AT_A_TIME;
    stream->destroyed = true;
    for (size_t i = streams.size(); i-- > 0;) {
        if (!streams[i]->destroyed || !streams[i]->ops.empty())
            continue;
        delete streams[i];
        streams.erase(streams.begin() + (long)i);
    }
    return cudaSuccess;
}

/* Who looks lets a little happen. */
static void let_happen()
{
    trace("wait");
    for (unsigned n = 1 + generator() % 16; n > 0 && advance_streams(); n--)
        ;
}

/* "Not yet" stays to be fetched as the last error. */
static cudaError_t answer(bool done)
{
    if (sticky != cudaSuccess)
        return sticky;
    return done ? cudaSuccess : last_error = cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden())
        return code;
    let_happen();
    return answer(stream->ops.empty());
}

/* To look at, or wait for, by the host: not one whose last record is of a capture or, which CUDA's
 * documentation leaves open, of a graph that was launched; nor while a capture goes on. */
static cudaError_t forbidden_event(cudaEvent_t event)
{
    if (cudaError_t code = forbidden())
        return code;
    if (event->by_graph)
        return last_error = cudaErrorInvalidResourceHandle;
    return event->capture ? last_error = cudaErrorCapturedEvent : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden_event(event))
        return code;
    let_happen();
    return answer(event->done >= event->recorded);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new CUevent_st;
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    (*event)->device = current_device;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaDeviceSynchronize(void)
{
    ONE_AT_A_TIME;
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i]->device == current_device)
            cudaStreamSynchronize(streams[i]);
    }
    return sticky;
}

static bool is_wanted_by(const branch &ops, cudaEvent_t event)
{
    bool wanted = false;
    for (const op &one : ops) {
        wanted = wanted || one.event == event;
        for (const branch *part : one.graph ? all_branches(*one.graph) : std::vector<branch *>())
            wanted = wanted || is_wanted_by(*part, event);
    }
    return wanted;
}

static bool is_wanted(cudaEvent_t event)
{
    bool wanted = false;
    for (cudaStream_t stream : streams)
        wanted = wanted || is_wanted_by(stream->ops, event);
    return wanted;
}

/* What it is still wanted for is done first. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    while (is_wanted(event) && advance_or_wait(all_streams()))
        ;
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (event->device != stream->device)
        return last_error = cudaErrorInvalidResourceHandle;
    event->capture = stream->capture ? stream->capture->number : 0;
    event->by_graph = false;
    push(stream, {op::RECORD, nullptr, event, ++event->recorded, nullptr, nullptr, nullptr});
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    ONE_AT_A_TIME;
    if (flags == cudaEventRecordDefault)
        return cudaEventRecord(event, stream);
    if (!stream->capture)
        return cudaErrorInvalidValue;
    push(stream, {op::EXTERNAL, nullptr, event, 0, nullptr, nullptr, nullptr});
    return cudaSuccess;
}

/* A stream that waits for what was captured is captured, too. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ONE_AT_A_TIME;
    if (event->recorded == 0)
        return cudaSuccess;
    CUgraph_st *capture = capture_of(event->capture);
    if (event->capture && !capture)
        return last_error = cudaErrorCapturedEvent;
    if (capture && !stream->capture)
        stream->capture = capture;
    else if (capture != stream->capture)
        return cudaErrorStreamCaptureIsolation;
    push(stream, {op::WAIT, nullptr, event, event->recorded, nullptr, nullptr, nullptr});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden_event(event))
        return code;
    trace("wait");
    while (event->done < event->recorded && advance_or_wait(all_streams()))
        ;
    return sticky;
}

#undef cudaEventElapsedTime
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    ONE_AT_A_TIME;
    if (!begin->timed || !end->timed || begin->recorded == 0 || end->recorded == 0)
        return cudaErrorInvalidResourceHandle;
    if (begin->done < begin->recorded || end->done < end->recorded)
        return last_error = cudaErrorNotReady;
    *ms = (float)((double)(end->fired_ns - begin->fired_ns) * 1e-6);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    static uint64_t n_captures;
    ONE_AT_A_TIME;
    if (stream->capture)
        return last_error = cudaErrorIllegalState;
    stream->capture = new CUgraph_st;
    stream->capture->origin = stream;
    stream->capture->number = ++n_captures;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    return cudaSuccess;
}

/* Whether the branch ends in a record that the origin waits for, or a branch for which the same
 * holds. What is behind that, a record that launches make, too, is not joined. */
static bool reaches_origin(const CUgraph_st &graph, cudaStream_t stream, size_t depth)
{
    if (stream == graph.origin)
        return true;
    const branch &ops = graph.branches.at(stream);
    if (ops.empty() || ops.back().kind != op::RECORD || depth > graph.branches.size())
        return false;
    const op last = ops.back();
    bool found = false;
    for (const auto &other : graph.branches) {
        for (const op &one : other.second)
            found = found || (one.kind == op::WAIT && one.event == last.event &&
                              one.generation == last.generation &&
                              reaches_origin(graph, other.first, depth + 1));
    }
    return found;
}

static bool joined(const CUgraph_st &graph)
{
    bool all = true;
    for (const auto &one : graph.branches)
        all = all && reaches_origin(graph, one.first, 0);
    return all;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ONE_AT_A_TIME;
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    ONE_AT_A_TIME;
    CUgraph_st *made = stream->capture;
    *graph = nullptr;
    if (!made || made->origin != stream)
        return cudaErrorStreamCaptureUnmatched;
    if (made->mode != cudaStreamCaptureModeRelaxed && made->thread != std::this_thread::get_id())
        return cudaErrorStreamCaptureWrongThread;
    for (cudaStream_t one : streams) {
        if (one->capture == made)
            one->capture = nullptr;
    }
    if (made->broken || !joined(*made)) {
        bool broken = made->broken;
        delete made;
        return broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
    }
    *graph = made;
    return cudaSuccess;
}

#undef cudaGraphInstantiate
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new CUgraphExec_st{*graph};
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

/* Events that are recorded outside of the graph are so from the launch on. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    trace("cudaGraphLaunch");
    for (auto &one : exec->graph.branches) {
        for (op &each : one.second) {
            if (each.kind == op::EXTERNAL) {
                each.event->recorded++;
                each.event->by_graph = true;
            }
            if (each.launched)
                each.launched();
        }
    }
    const auto launch = std::make_shared<running>();
    launch->branches = exec->graph.branches;
    push(stream, {op::GRAPH, nullptr, nullptr, 0, nullptr, nullptr, launch});
    return cudaSuccess;
}
}
