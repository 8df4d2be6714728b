/*
 * test_links.c - how `dpbench links` measures: windows on a clock that stands still unless work
 * moves it; copies of a device table whose every copy takes a known time; the ways between the PCI
 * devices of a made-up machine; and memory, cores and loopback of this one, in short.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/command.h"
#include "lib/printed.h"
#include "lib/says.h"
#include "lib/test.h"
#include "links/links.h"
#include "links/links_report.h"
#include "links/network_test.h"
#include "links/slow.h"
#include "machine/cores.h"
#include "machine/topology.h"

/* ---- the clock: linked with --wrap=dpb_now_ns ------------------------------------------------ */

static bool made_up;
static double clock_ns; /* while it is made up */

int64_t __real_dpb_now_ns(void);
int64_t __wrap_dpb_now_ns(void);
int64_t __wrap_dpb_now_ns(void)
{
    return made_up ? (int64_t)llround(clock_ns) : __real_dpb_now_ns();
}

static const struct dpb_links_limits limits = {.window_ns = 10000000, .max_bytes = 256 << 20};

static void expect_near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-4 * fabs(should)))
        fail_msg("%.9g should be %.9g", is, should);
}

/* ---- windows ------------------------------------------------------------------------------- */

struct work {
    double each_ns;
    uint64_t n_calls, most;
    uint64_t slow_call; /* takes twice as long; 0: none */
    uint64_t failing;   /* fails; 0: none */
};

static dpb_status do_work(void *work_, uint64_t times)
{
    struct work *work = work_;
    bool slow = ++work->n_calls == work->slow_call;
    clock_ns += work->each_ns * (double)times * (slow ? 2 : 1);
    work->most = times;
    return work->n_calls == work->failing ? DPB_TIMEOUT : DPB_OK;
}

TEST(test_windows)
{
    static const double each[] = {3, 1000, 999999, 2e7, 3e9};
    made_up = true;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        struct work work = {.each_ns = each[i]};
        struct dpb_links_value value;
        assert_int_equal(dpb_links_time(&limits, do_work, &work, &value), DPB_OK);
        expect_near(value.median, each[i] * 1e-9);
        /* A window is filled, and not by much more than is needed. */
        double window = each[i] * (double)work.most;
        assert_true(window >= 1e7 && window <= fmax(1.2e8, each[i]));
        uint64_t calls = work.n_calls;
        work = (struct work){.each_ns = each[i], .slow_call = calls};
        assert_int_equal(dpb_links_time(&limits, do_work, &work, &value), DPB_OK);
        expect_near(value.median, each[i] * 1e-9);
        expect_near(value.least, each[i] * 1e-9);
        expect_near(value.most, 2 * each[i] * 1e-9);
        struct dpb_links_value rate = dpb_links_rate(&value, 1000);
        expect_near(rate.median, 1000 / (each[i] * 1e-9));
        expect_near(rate.least, 500 / (each[i] * 1e-9));
        expect_near(rate.most, 1000 / (each[i] * 1e-9));
        for (uint64_t failing = 1; failing <= calls; failing++) {
            work = (struct work){.each_ns = each[i], .failing = failing};
            assert_int_equal(dpb_links_time(&limits, do_work, &work, &value), DPB_TIMEOUT);
            assert_int_equal(work.n_calls, failing);
        }
    }
    made_up = false;
}

/* ---- devices that do not exist ------------------------------------------------------------- */

/* Every copy takes a time to begin, and then goes at its rate; bytes/s. */
enum { N_DEVICES = 3, MEMORIES = 64 };
static const double begin_ns = 2000, pinned_to = 50e9, pinned_from = 40e9, pageable = 8e9,
                    peer = 200e9, staged = 20e9, within = 1000e9;

struct queue {
    uint32_t device;
    double busy_until;
};

static struct {
    struct {
        void *memory;
        dpb_link_memory kind;
        uint32_t device;
        uint64_t bytes;
    } memories[MEMORIES];
    size_t n_memories, n_queues, n_calls, failing;
    bool peers[N_DEVICES][N_DEVICES];
    bool cannot; /* be peers: 0 and 2 */
    uint64_t copied[4];
} machine;

static dpb_status step(void)
{
    return ++machine.n_calls == machine.failing ? dpb_fail(DPB_FAILED, "as it should") : DPB_OK;
}

static dpb_status fake_allocate(dpb_link_memory kind, uint32_t device, uint64_t bytes,
                                void **memory)
{
    DPB_TRY(step());
    assert_true(machine.n_memories < MEMORIES && device < N_DEVICES);
    *memory = malloc(1);
    machine.memories[machine.n_memories].memory = *memory;
    machine.memories[machine.n_memories].kind = kind;
    machine.memories[machine.n_memories].device = device;
    machine.memories[machine.n_memories++].bytes = bytes;
    return DPB_OK;
}

static size_t find_memory(const void *memory)
{
    for (size_t i = 0; i < machine.n_memories; i++)
        if (machine.memories[i].memory == memory)
            return i;
    return MEMORIES;
}

static void fake_release(dpb_link_memory kind, uint32_t device, void *memory)
{
    size_t i = find_memory(memory);
    assert_true(i < MEMORIES);
    assert_true(machine.memories[i].kind == kind && machine.memories[i].device == device);
    free(memory);
    machine.memories[i] = machine.memories[--machine.n_memories];
}

static dpb_status fake_open_queue(uint32_t device, void **queue)
{
    DPB_TRY(step());
    struct queue *made = calloc(1, sizeof *made);
    made->device = device;
    *queue = made;
    machine.n_queues++;
    return DPB_OK;
}

static void fake_close_queue(void *queue)
{
    machine.n_queues -= queue != NULL;
    free(queue);
}

static dpb_status fake_possible(uint32_t from, uint32_t to, bool *possible)
{
    DPB_TRY(step());
    *possible = !machine.cannot || from + to != 2;
    return DPB_OK;
}

static dpb_status fake_enable(uint32_t from, uint32_t to, bool enabled)
{
    DPB_TRY(step());
    assert_true(from != to && machine.peers[from][to] != enabled);
    assert_true(!machine.cannot || from + to != 2);
    machine.peers[from][to] = enabled;
    return DPB_OK;
}

/* Of what kind the memory is, that it is where the copy says, and that it is large enough. */
static bool is_pinned(const void *memory, uint32_t place, uint64_t bytes)
{
    size_t i = find_memory(memory);
    if (i == MEMORIES) {
        assert_int_equal(place, DPB_LINK_HOST);
        return false;
    }
    assert_true(bytes <= machine.memories[i].bytes);
    bool pinned = machine.memories[i].kind == DPB_LINK_PINNED;
    assert_true(pinned ? place == DPB_LINK_HOST : place == machine.memories[i].device);
    return pinned;
}

static double rate_between(const void *destination, uint32_t to, const void *source, uint32_t from,
                           uint64_t bytes)
{
    bool to_pinned = is_pinned(destination, to, bytes);
    bool from_pinned = is_pinned(source, from, bytes);
    if (to == DPB_LINK_HOST)
        return to_pinned ? pinned_from : pageable;
    if (from == DPB_LINK_HOST)
        return from_pinned ? pinned_to : pageable;
    return to == from ? within : machine.peers[from][to] ? peer : staged;
}

static dpb_status fake_copy(void *queue_, void *destination, uint32_t to, const void *source,
                            uint32_t from, uint64_t bytes)
{
    struct queue *queue = queue_;
    DPB_TRY(step());
    assert_true(queue->device == to || queue->device == from);
    double rate = rate_between(destination, to, source, from, bytes);
    queue->busy_until = fmax(queue->busy_until, clock_ns) + begin_ns + (double)bytes / rate * 1e9;
    if (rate == pageable)
        clock_ns = queue->busy_until;
    return DPB_OK;
}

static dpb_status fake_wait(void *queue_)
{
    const struct queue *queue = queue_;
    DPB_TRY(step());
    clock_ns = fmax(clock_ns, queue->busy_until);
    return DPB_OK;
}

static const struct dpb_device_links fake = {.allocate = fake_allocate,
                                             .release = fake_release,
                                             .open_queue = fake_open_queue,
                                             .close_queue = fake_close_queue,
                                             .peer_possible = fake_possible,
                                             .peer_enable = fake_enable,
                                             .copy = fake_copy,
                                             .wait = fake_wait};

static void expect_nothing_left(void)
{
    assert_int_equal(machine.n_memories, 0);
    assert_int_equal(machine.n_queues, 0);
    for (int i = 0; i < N_DEVICES; i++)
        for (int k = 0; k < N_DEVICES; k++)
            assert_false(machine.peers[i][k]);
}

static double rate_of(double bytes, double rate)
{
    return bytes / (begin_ns * 1e-9 + bytes / rate);
}

TEST(test_host_copies)
{
    made_up = true;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct dpb_links_host host;
        memset(&machine, 0, sizeof machine);
        assert_int_equal(dpb_links_host_measure(&limits, &fake, 1, pinned, &host), DPB_OK);
        assert_true(host.device == 1 && host.pinned == (pinned == 1));
        double to = pinned ? pinned_to : pageable, from = pinned ? pinned_from : pageable;
        for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
            double bytes = (double)dpb_links_size(i);
            expect_near(host.rate[DPB_LINKS_TO_DEVICE][i].median, rate_of(bytes, to));
            expect_near(host.rate[DPB_LINKS_FROM_DEVICE][i].median, rate_of(bytes, from));
            /* Both go at once, until the slower one is done; pageable ones would take turns. */
            if (pinned)
                expect_near(host.rate[DPB_LINKS_BOTH][i].median, 2 * rate_of(bytes, pinned_from));
            else
                assert_true(isnan(host.rate[DPB_LINKS_BOTH][i].median));
        }
        expect_near(host.latency[0].median, begin_ns * 1e-9 + 4 / to);
        expect_near(host.latency[1].median, begin_ns * 1e-9 + 4 / from);
        expect_nothing_left();
    }
    made_up = false;
}

TEST(test_pairs)
{
    static const struct {
        uint32_t from, to;
        bool direct, cannot, possible;
        double rate;
    } cases[] = {{0, 1, true, false, true, 200e9},  {2, 0, false, false, true, 20e9},
                 {1, 1, true, false, true, 1000e9}, {0, 2, true, true, false, 0},
                 {0, 2, false, true, true, 20e9},   {0, 1, true, true, true, 200e9}};
    made_up = true;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct dpb_links_pair pair;
        memset(&machine, 0, sizeof machine);
        machine.cannot = cases[k].cannot;
        assert_int_equal(dpb_links_pair_measure(&limits, &fake, cases[k].from, cases[k].to,
                                                cases[k].direct, &pair),
                         DPB_OK);
        assert_true(pair.possible == cases[k].possible);
        for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
            double bytes = (double)dpb_links_size(i);
            if (!cases[k].possible) {
                assert_true(isnan(pair.one_way[i].median) && isnan(pair.both[i].median));
                continue;
            }
            expect_near(pair.one_way[i].median, rate_of(bytes, cases[k].rate));
            if (cases[k].from == cases[k].to)
                assert_true(isnan(pair.both[i].median));
            else
                expect_near(pair.both[i].median, 2 * rate_of(bytes, cases[k].rate));
        }
        expect_nothing_left();
    }
    made_up = false;
}

/* Whatever call fails: its status comes back, and nothing stays. */
TEST(test_failing_calls)
{
    const struct dpb_links_limits short_ones = {.window_ns = 1000, .max_bytes = 4096};
    made_up = true;
    for (int pairs = 0; pairs < 2; pairs++) {
        dpb_status status = DPB_FAILED;
        size_t failing = 1;
        for (; status != DPB_OK; failing++) {
            struct dpb_links_host host;
            struct dpb_links_pair pair;
            memset(&machine, 0, sizeof machine);
            machine.failing = failing;
            status = pairs ? dpb_links_pair_measure(&short_ones, &fake, 0, 1, true, &pair)
                           : dpb_links_host_measure(&short_ones, &fake, 0, true, &host);
            assert_true(status == DPB_OK || status == DPB_FAILED);
            assert_true((status == DPB_OK) == (machine.n_calls < failing));
            assert_int_equal(machine.n_memories, 0);
            assert_int_equal(machine.n_queues, 0);
            dpb_first_error_clear();
        }
        assert_true(failing > 20);
    }
    made_up = false;
}

/* ---- machines that are slow ---------------------------------------------------------------- */

TEST(test_rounds)
{
    for (uint32_t n = 2; n < 18; n++) {
        bool met[18][18] = {{false}};
        const uint32_t rounds = dpb_network_rounds(n);
        assert_int_equal(rounds, n % 2 == 0 ? n - 1 : n);
        for (uint32_t round = 0; round < rounds; round++) {
            for (uint32_t a = 0; a < n; a++) {
                const uint32_t b = dpb_network_opponent(n, round, a);
                assert_true(b != a && (b < n || n % 2 == 1));
                if (b >= n)
                    continue;
                assert_int_equal(dpb_network_opponent(n, round, b), a); /* one pair a round */
                assert_false(met[a][b]);
                met[a][b] = true;
            }
        }
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = 0; b < n; b++)
                assert_int_equal(met[a][b], a != b);
    }
}

/* The rates of ways: factors of 1e8 bytes/s by sender and receiver, of one way, and a spread of
 * the ways and their windows. */
struct made_network {
    int n;
    double sends[8], receives[8], way;
    int from, to;
    double spread;
};

static double drawn(double spread)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return exp(spread * (2 * (double)(state >> 11) / (double)(UINT64_C(1) << 53) - 1));
}

static json_t *make_network(const struct made_network *made)
{
    json_t *machines = json_array(), *ways = json_array();
    for (int from = 0; from < made->n; from++) {
        json_array_append_new(machines, json_pack("{s:s}", "host", "h"));
        for (int to = 0; to < made->n; to++) {
            const bool special = from == made->from && to == made->to;
            const double rate = 1e8 * made->sends[from] * made->receives[to] *
                                (special ? made->way : 1) * drawn(made->spread);
            struct dpb_links_value latency = dpb_links_nothing(), rates[DPB_LINKS_SIZES];
            for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
                double x[DPB_LINKS_WINDOWS];
                for (int k = 0; k < DPB_LINKS_WINDOWS; k++)
                    x[k] = rate * drawn(made->spread);
                /* A slow way has no larger sizes. */
                rates[i] = i > 6 && rate < 5e7 ? latency : dpb_links_value_of(x, DPB_LINKS_WINDOWS);
            }
            if (from != to)
                json_array_append_new(
                    ways, dpb_links_way_to_json((uint32_t)from, (uint32_t)to, &latency, rates));
        }
    }
    return own_json(json_pack("{s:o, s:o}", "machines", machines, "ways", ways));
}

static json_t *slow_of(const struct made_network *made)
{
    return own_json(dpb_links_slow(make_network(made)));
}

static void expect_slow(const json_t *row, int from, int to, double bytes_per_s)
{
    const json_t *a = json_at(row, "from"), *b = json_at(row, "to");
    const double low = json_number_at(row, "bytes_per_s.low"),
                 high = json_number_at(row, "bytes_per_s.high");
    if ((json_is_null(a) ? -1 : json_integer_value(a)) != from ||
        (json_is_null(b) ? -1 : json_integer_value(b)) != to)
        fail_msg("not %d to %d: %s", from, to, json_dumps(row, 0));
    if (!(low < bytes_per_s * 1.1 && high > bytes_per_s / 1.1 && low <= high))
        fail_msg("%.3g .. %.3g, not %.3g", low, high, bytes_per_s);
    expect_near(json_number_at(row, "size"), bytes_per_s < 5e7 ? 4 << 20 : 256 << 20);
    assert_true(fabs(json_number_at(row, "others_bytes_per_s") / 1e8 - 1) < 0.2);
}

static struct made_network equal_machines(int n)
{
    struct made_network made = {.n = n, .way = 1, .spread = 0.03};
    for (int i = 0; i < 8; i++)
        made.sends[i] = made.receives[i] = 1;
    return made;
}

/* A slow machine is named with its direction, and its partners are not; all tries. */
TEST(test_slow_machines)
{
    for (int try = 0; try < 100; try++) {
        const int n = 3 + try % 6, slow = try % n;
        struct made_network made = equal_machines(n);
        assert_int_equal(json_array_size(slow_of(&made)), 0);
        made.sends[slow] = 0.1;
        json_t *rows = slow_of(&made);
        assert_int_equal(json_array_size(rows), 1);
        expect_slow(json_array_get(rows, 0), slow, -1, 1e7);
        made.receives[slow] = 0.05;
        rows = slow_of(&made);
        assert_int_equal(json_array_size(rows), 2);
        expect_slow(json_array_get(rows, 0), -1, slow, 5e6);
        expect_slow(json_array_get(rows, 1), slow, -1, 1e7);
    }
}

TEST(test_slow_ways)
{
    for (int n = 2; n < 6; n++) {
        struct made_network made = equal_machines(n);
        made.from = 1;
        made.way = 0.6;
        json_t *rows = slow_of(&made);
        assert_int_equal(json_array_size(rows), 1);
        expect_slow(json_array_get(rows, 0), 1, 0, 6e7);
    }
    struct made_network made = equal_machines(4); /* beside a slow machine */
    made.sends[2] = 0.1;
    made.to = 1;
    made.way = 0.6;
    json_t *rows = slow_of(&made);
    assert_int_equal(json_array_size(rows), 2);
    expect_slow(json_array_get(rows, 0), 2, -1, 1e7);
    assert_true(json_number_at(rows, "1.to") == 1);
}

/* Noise has no names: ways differ by a factor of 3, or a way is a bit slower. Nor has what was not
 * measured. */
TEST(test_nothing_is_slow)
{
    struct made_network made = equal_machines(4);
    for (int try = 0; try < 100; try++) {
        made.spread = try % 2 == 0 ? 0.05 : 0.1;
        made.way = 0.9;
        made.to = 1;
        assert_int_equal(json_array_size(slow_of(&made)), 0);
    }
    json_t *network = make_network(&made);
    json_array_remove(json_object_get(network, "ways"), 3);
    assert_true(json_is_null(own_json(dpb_links_slow(network))));
}

/* ---- topology ------------------------------------------------------------------------------ */

#define SETS(cpus, nodes)                                                \
    " cpuset=\"" cpus "\" complete_cpuset=\"" cpus "\" nodeset=\"" nodes \
    "\" complete_nodeset=\"" nodes "\""
#define PCI(index, address, type)                                        \
    " gp_index=\"" index "\" pci_busid=\"" address "\" pci_type=\"" type \
    " [10de:2335] [0000:0000] 00\" pci_link_speed=\"31.500000\""
#define HOST_BRIDGE(index, buses)               \
    "<object type=\"Bridge\" gp_index=\"" index \
    "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"" buses "\">"
#define BRIDGE(index, address, depth, buses)                                              \
    "<object type=\"Bridge\" bridge_type=\"1-1\" depth=\"" depth "\" bridge_pci=\"" buses \
    "\"" PCI(index, address, "0604") ">"
#define DEVICE(index, address, type) "<object type=\"PCIDev\"" PCI(index, address, type) "/>"
#define CORE(index, number, cpus, nodes)                                                    \
    "<object type=\"Core\" os_index=\"" number "\" gp_index=\"1" index                      \
    "\"" SETS(cpus, nodes) ">"                                                              \
                           "<object type=\"PU\" os_index=\"" number "\" gp_index=\"2" index \
                           "\"" SETS(cpus, nodes) "/>"                                      \
                                                  "</object>"
#define NODE(index, number, cpus, nodes)                                  \
    "<object type=\"NUMANode\" os_index=\"" number "\" gp_index=\"" index \
    "\"" SETS(cpus, nodes) " local_memory=\"1073741824\"/>"
#define L3(index, cpus, nodes)                              \
    "<object type=\"L3Cache\" gp_index=\"" index "\"" SETS( \
        cpus,                                               \
        nodes) " cache_size=\"33554432\""                   \
               " depth=\"3\" cache_linesize=\"64\" cache_associativity=\"16\" cache_type=\"0\">"

/* Two packages of two cores. On the first a switch with two GPUs (03, 04), behind it another with a
 * network (07), beside it a network (08); on a host bridge of its own a GPU (11). On the second
 * package a GPU (21). */
/* clang-format off */
static const char made_up_machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\">"
    "<topology version=\"2.0\">"
    "<object type=\"Machine\" os_index=\"0\" gp_index=\"1\"" SETS("0x0000000f", "0x00000003")
    " allowed_cpuset=\"0x0000000f\" allowed_nodeset=\"0x00000003\">"

    "<object type=\"Package\" os_index=\"0\" gp_index=\"2\"" SETS("0x00000003", "0x00000001") ">"
    NODE("3", "0", "0x00000003", "0x00000001")
    L3("4", "0x00000003", "0x00000001")
    CORE("00", "0", "0x00000001", "0x00000001")
    CORE("01", "1", "0x00000002", "0x00000001")
    "</object>" /* L3 */
    HOST_BRIDGE("20", "0000:[00-08]")
    BRIDGE("21", "0000:00:01.0", "1", "0000:[01-07]")
    BRIDGE("22", "0000:01:00.0", "2", "0000:[02-07]")
    BRIDGE("23", "0000:02:00.0", "3", "0000:[03-03]")
    DEVICE("24", "0000:03:00.0", "0302") "</object>"
    BRIDGE("25", "0000:02:01.0", "3", "0000:[04-04]")
    DEVICE("26", "0000:04:00.0", "0302") "</object>"
    BRIDGE("27", "0000:02:02.0", "3", "0000:[05-07]")
    BRIDGE("28", "0000:05:00.0", "4", "0000:[06-07]")
    BRIDGE("29", "0000:06:00.0", "5", "0000:[07-07]")
    DEVICE("30", "0000:07:00.0", "0207") "</object>"
    "</object>" /* 28 */
    "</object>" /* 27 */
    "</object>" /* 22 */
    "</object>" /* 21 */
    BRIDGE("31", "0000:00:02.0", "1", "0000:[08-08]")
    DEVICE("32", "0000:08:00.0", "0200") "</object>"
    "</object>" /* 20 */
    HOST_BRIDGE("40", "0000:[10-11]")
    BRIDGE("41", "0000:10:01.0", "1", "0000:[11-11]")
    DEVICE("42", "0000:11:00.0", "0302") "</object>"
    "</object>" /* 40 */
    "</object>" /* the first package */

    "<object type=\"Package\" os_index=\"1\" gp_index=\"50\"" SETS("0x0000000c", "0x00000002") ">"
    NODE("51", "1", "0x0000000c", "0x00000002")
    L3("52", "0x00000004", "0x00000002")
    CORE("02", "2", "0x00000004", "0x00000002")
    "</object>" /* L3 */
    L3("53", "0x00000008", "0x00000002")
    CORE("03", "3", "0x00000008", "0x00000002")
    "</object>" /* L3 */
    HOST_BRIDGE("60", "0000:[20-21]")
    BRIDGE("61", "0000:20:01.0", "1", "0000:[21-21]")
    DEVICE("62", "0000:21:00.0", "0302") "</object>"
    "</object>" /* 60 */
    "</object>" /* the second package */
    "</object>" /* the machine */
    "</topology>";
/* clang-format on */

TEST(test_topology)
{
    static const char *const paths[][3] = {
        {"03", "03", "X"},    {"03", "04", "PIX"}, {"03", "07", "PXB"}, {"04", "08", "PHB"},
        {"03", "11", "NODE"}, {"03", "21", "SYS"}, {"11", "21", "SYS"}, {"03", "99", "?"}};
    static const struct {
        uint16_t a, b;
        const char *shared;
    } cores[] = {{0, 1, "L3"}, {2, 3, "NUMA node"}, {0, 2, "machine"}, {3, 3, "core"}, {0, 9, "?"}};
    struct dpb_topology *topology;
    assert_int_equal(dpb_topology_open(made_up_machine, &topology), DPB_OK);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char a[32], b[32];
        snprintf(a, sizeof a, "0000:%s:00.0", paths[i][0]);
        snprintf(b, sizeof b, "00000000:%s:00.0", paths[i][1]); /* as NVML writes them */
        assert_string_equal(dpb_topology_path(topology, a, b), paths[i][2]);
        assert_string_equal(dpb_topology_path(topology, b, a), paths[i][2]);
    }
    assert_string_equal(dpb_topology_path(topology, "rubbish", "0000:03:00.0"), "?");
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        assert_string_equal(dpb_topology_shared(topology, cores[i].a, cores[i].b), cores[i].shared);
    assert_int_equal(dpb_topology_nodes(topology), 2);
    assert_int_equal(dpb_topology_node_of(topology, 1), 0);
    assert_int_equal(dpb_topology_node_of(topology, 2), 1);
    assert_int_equal(dpb_topology_node_of(topology, 9), UINT32_MAX);
    json_t *json = own_json(dpb_topology_describe(topology));
    assert_non_null(json);
    assert_int_equal(json_array_size(json_object_get(json, "pci")), 6);
    assert_true(json_number_at(json, "pci.0.node") == 0 && json_number_at(json, "pci.5.node") == 1);
    assert_true(json_number_at(json, "nodes.1.memory_bytes") == 1073741824);
    assert_string_equal(json_text_at(json, "pci.2.kind"), "network");
    const json_t *way = json_object_get(json_at(json, "pci.0.paths"), "0000:04:00.0");
    assert_string_equal(json_string_value(way), "PIX");
    expect_near(json_number_at(json, "pci.0.link_bytes_per_s"), 31.5e9);
    dpb_topology_close(topology);
    dpb_topology_close(NULL);
    assert_int_equal(dpb_topology_open("no XML", &topology), DPB_FAILED);
    dpb_first_error_clear();
}

/* ---- this machine -------------------------------------------------------------------------- */

static const struct dpb_links_limits brief = {
    .window_ns = 200000, .min_bytes = 4096, .max_bytes = 65536};

/* Known where it was wanted, and there in order. */
static void expect_values(const struct dpb_links_value values[DPB_LINKS_SIZES], uint64_t least)
{
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
        uint64_t bytes = dpb_links_size(i);
        const struct dpb_links_value *value = &values[i];
        if (bytes < brief.min_bytes || bytes > brief.max_bytes || bytes < least)
            assert_true(isnan(value->median));
        else
            assert_true(value->least > 0 && value->least <= value->median &&
                        value->median <= value->most && isfinite(value->most));
    }
}

static const struct dpb_cores_job alone = {.n_workers = 1, .learners = 1};

/* A pair that was not measured has no number, and is no pair. */
TEST(test_printed_latencies)
{
    json_t *document = own_json(
        json_pack("{s:{s:[], s:[{s:s, s:{s:f}}, {s:s, s:{s:f}}, {s:s, s:{s:n}}, {s:s, s:{s:f}}]}}",
                  "cores", "rate", "latency", "shared", "core", "latency_s", "median", 1e-7,
                  "shared", "core", "latency_s", "median", 3e-7, "shared", "package", "latency_s",
                  "median", "shared", "cache", "latency_s", "median", 1e-7));
    const char *printed = printed_as(document, dpb_links_report_print);
    expect_part(printed, "  latency, same core: 200 ns (100 .. 300, 2 pairs)\n");
    expect_part(printed, "  latency, same cache: 100 ns (100 .. 100, 1 pair)\n");
    assert_null(strstr(printed, "same package"));
}

TEST(test_this_machine)
{
    uint16_t cpus[2];
    uint32_t n = dpb_cores_of(&alone, 0, cpus, 2);
    struct dpb_links_memory memory;
    struct dpb_links_loopback loopback;
    assert_true(n > 0);
    for (uint32_t threads = 1; threads <= n; threads++) {
        uint16_t toucher = threads == 1 ? cpus[n - 1] : UINT16_MAX;
        assert_int_equal(dpb_links_memory_measure(&brief, cpus, threads, toucher, &memory), DPB_OK);
        assert_int_equal(memory.n_threads, threads);
        expect_values(memory.read, threads == 1 ? 0 : 8192);
        expect_values(memory.copy, threads == 1 ? 0 : 8192);
    }
    /* One core is enough for this. */
    assert_int_equal(dpb_links_loopback_measure(&brief, cpus[0], cpus[n - 1], &loopback), DPB_OK);
    expect_values(loopback.rate, 0);
    assert_true(loopback.latency.median > 1e-7);
    if (n < 2)
        return;
    struct dpb_links_cores pair = {.a = cpus[0], .b = cpus[1]};
    assert_int_equal(dpb_links_cores_latency(&brief, pair.a, pair.b, &pair.latency), DPB_OK);
    assert_true(pair.latency.least > 1e-9 && pair.latency.least <= pair.latency.most);
    assert_int_equal(dpb_links_cores_rate(&brief, &pair), DPB_OK);
    expect_values(pair.rate, 0);
}

/* Nobody works when one of a team cannot start. */
static void work_alone(void *context, uint32_t member)
{
    (void)member;
    *(int *)context = 1;
}

TEST(test_team_that_cannot_start)
{
    uint16_t cpus[3] = {0, UINT16_MAX, 0};
    int worked = 0;
    assert_true(dpb_cores_of(&alone, 0, cpus, 1) == 1);
    assert_int_equal(dpb_links_team(cpus, 3, work_alone, &worked), DPB_FAILED);
    assert_int_equal(worked, 0);
    dpb_first_error_clear();
}

TEST_MAIN(NULL, NULL)
