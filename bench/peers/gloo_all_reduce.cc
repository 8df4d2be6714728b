/*
 * gloo_all_reduce.cc - Gloo's all-reduce of fp32 over TCP on the loopback interface, as
 * bench/all_reduce.c measures a strategy: a repetition takes from the last rank's beginning to the
 * last one's end.
 *
 *     gloo_all_reduce RANKS BYTES SECONDS
 *         [ring|bcube|ring_chunked|halving_doubling [free|pinned [BUCKET]]]
 *
 * With BUCKET, bytes, `ring` and `bcube` are called for one bucket after the other, as dpbench
 * does. `ring` is what gloo::allreduce, and with it PyTorch, takes by itself; the last two are
 * Gloo's older classes. Ranks are processes; `pinned` to a core each, with the thread that Gloo
 * starts in each of them, or `free` to run where the system puts them. (Pinned together, the two
 * threads of a rank get into each other's way: Gloo's polls for a lock that the other holds, for as
 * long as the system lets it run.)
 */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace
{

constexpr int most_ranks = 16, most = 200000, warm = 20;

/* In memory that all ranks map. */
struct Shared {
    pthread_barrier_t barrier;
    std::atomic<int> n_repetitions;
    std::atomic<bool> wrong;
    double begin_s[most_ranks][most], end_s[most_ranks][most];
};

struct Bench {
    int ranks = 0, rank = 0;
    size_t elements = 0, bucket = 0; /* elements */
    double seconds = 0;
    bool pinned = false;
    std::string algorithm = "ring", directory;
    Shared *shared = nullptr;
};

[[noreturn]] void fail(const char *what)
{
    fprintf(stderr, "gloo_all_reduce: %s\n", what);
    exit(1);
}

double now_s()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* It sleeps: a rank that spun would keep Gloo's own thread, which shares its core, from running. */
void barrier(Bench &b)
{
    pthread_barrier_wait(&b.shared->barrier);
}

void pin(int rank)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        fail("sched_getaffinity");
    int n = 0, wanted = rank % CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n++ == wanted)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* One all-reduce in place, as often as it is called. */
std::function<void()> make_all_reduce(const Bench &b, std::shared_ptr<gloo::Context> context,
                                      float *data)
{
    if (b.algorithm == "ring_chunked" || b.algorithm == "halving_doubling") {
        std::vector<float *> pointers{data};
        std::shared_ptr<gloo::Algorithm> made;
        if (b.algorithm == "ring_chunked")
            made = std::make_shared<gloo::AllreduceRingChunked<float>>(context, pointers,
                                                                       int(b.elements));
        else
            made = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, pointers,
                                                                           int(b.elements));
        return [made] { made->run(); };
    }
    auto way = b.algorithm == "bcube" ? gloo::detail::AllreduceOptionsImpl::BCUBE
                                      : gloo::detail::AllreduceOptionsImpl::RING;
    return [=, elements = b.elements, bucket = b.bucket] {
        for (size_t at = 0; at < elements; at += bucket) {
            gloo::AllreduceOptions options(context);
            options.setOutput(data + at, std::min(bucket, elements - at));
            options.setAlgorithm(way);
            options.setReduceFunction([](void *to, const void *one, const void *other, size_t n) {
                gloo::sum<float>(to, one, other, n);
            });
            gloo::allreduce(options);
        }
    };
}

/* Integers whose sum is exact; then zeros, which stay zeros. */
void check_sum(Bench &b, const std::function<void()> &all_reduce, float *data)
{
    for (size_t i = 0; i < b.elements; i++)
        data[i] = float((i * 7 + size_t(b.rank) * 3) % 101);
    all_reduce();
    for (size_t i = 0; i < b.elements; i++) {
        float sum = 0;
        for (size_t rank = 0; rank < size_t(b.ranks); rank++)
            sum += float((i * 7 + rank * 3) % 101);
        if (data[i] != sum)
            b.shared->wrong = true;
    }
    memset(data, 0, b.elements * sizeof *data);
}

void run_rank(Bench &b)
{
    if (b.pinned)
        pin(b.rank);
    gloo::transport::tcp::attr where("127.0.0.1");
    gloo::rendezvous::FileStore store(b.directory);
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(b.rank, b.ranks);
    context->connectFullMesh(store, device);
    std::vector<float> data(b.elements);
    auto all_reduce = make_all_reduce(b, context, data.data());
    check_sum(b, all_reduce, data.data());
    double end_s = now_s() + b.seconds;
    for (int n = 0;; n++) {
        if (b.rank == 0)
            b.shared->n_repetitions = n < warm + 3 || (now_s() < end_s && n < most) ? most + 1 : n;
        barrier(b);
        if (b.shared->n_repetitions == n)
            break;
        barrier(b);
        double began_s = now_s();
        all_reduce();
        b.shared->end_s[b.rank][n] = now_s();
        b.shared->begin_s[b.rank][n] = began_s;
    }
    barrier(b);
}

bool run_all(Bench &b)
{
    pid_t pids[most_ranks];
    bool failed = false;
    for (b.rank = 0; b.rank < b.ranks; b.rank++) {
        pids[b.rank] = fork();
        if (pids[b.rank] == 0) {
            try {
                run_rank(b);
            } catch (const std::exception &error) {
                fprintf(stderr, "gloo_all_reduce: rank %d: %s\n", b.rank, error.what());
                _exit(1);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < b.ranks; i++) {
        int status;
        if (waitpid(-1, &status, 0) < 0 || status != 0)
            failed = true;
        for (int r = 0; failed && r < b.ranks; r++) /* the others would wait for ever */
            kill(pids[r], SIGKILL);
    }
    return !failed;
}

void print_result(const Bench &b)
{
    std::vector<double> times;
    for (int i = warm; i < b.shared->n_repetitions; i++) {
        double began_s = 0, ended_s = 0;
        for (int rank = 0; rank < b.ranks; rank++) {
            began_s = std::max(began_s, b.shared->begin_s[rank][i]);
            ended_s = std::max(ended_s, b.shared->end_s[rank][i]);
        }
        times.push_back(ended_s - began_s);
    }
    std::sort(times.begin(), times.end());
    double median_s = times[times.size() / 2], bytes = double(b.elements * sizeof(float));
    printf("{\"ranks\": %d, \"bytes\": %.0f, \"algorithm\": \"%s, %s\", \"repetitions\": %zu, "
           "\"median_us\": %.3f, \"rate\": %.6f, \"unit\": \"GB/s\", "
           "\"versions\": {\"Gloo\": \"%d.%d.%d\"}}\n",
           b.ranks, bytes, b.algorithm.c_str(), b.pinned ? "pinned" : "free", times.size(),
           median_s * 1e6, bytes * 2 * (b.ranks - 1) / b.ranks / median_s / 1e9, GLOO_VERSION_MAJOR,
           GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

} // namespace

int main(int argc, char **argv)
{
    Bench b;
    if (argc >= 4 && argc <= 7) {
        b.ranks = atoi(argv[1]);
        b.elements = strtoull(argv[2], nullptr, 10) / sizeof(float);
        b.seconds = atof(argv[3]);
        b.bucket = argc == 7 ? strtoull(argv[6], nullptr, 10) / sizeof(float) : b.elements;
    }
    if (argc >= 5)
        b.algorithm = argv[4];
    std::string place = argc >= 6 ? argv[5] : "free";
    b.pinned = place == "pinned";
    const char *const known[] = {"ring", "bcube", "ring_chunked", "halving_doubling"};
    if (b.ranks < 2 || b.ranks > most_ranks || b.elements == 0 || b.seconds <= 0 || b.bucket == 0 ||
        std::find(std::begin(known), std::end(known), b.algorithm) == std::end(known) ||
        (!b.pinned && place != "free"))
        fail("usage: gloo_all_reduce RANKS(2..16) BYTES SECONDS "
             "[ring|bcube|ring_chunked|halving_doubling [free|pinned [BUCKET]]]");
    void *memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char directory[] = "/tmp/gloo_all_reduce-XXXXXX";
    if (memory == MAP_FAILED || !mkdtemp(directory))
        fail("no memory or no directory");
    b.shared = static_cast<Shared *>(memory);
    b.directory = directory;
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&b.shared->barrier, &attributes, unsigned(b.ranks));
    bool failed = !run_all(b);
    std::filesystem::remove_all(b.directory);
    if (failed || b.shared->wrong)
        fail(failed ? "a rank failed" : "the sum is wrong");
    print_result(b);
    return 0;
}
