/* test_predict.c - predicted steps against limits that are known exactly, the formulas of the
 * field, and a second way to the same number. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/capture.h"
#include "lib/test.h"
#include "study/predict/predict.h"

#define MB 1e6

/* Gradients of 10, 30 and 100 MB are final after 40, 60 and 90 ms; backward ends after 95 ms. */
static const double ready_s[] = {0.040, 0.060, 0.090}, ready_bytes[] = {10 * MB, 30 * MB, 100 * MB};
static const double factors[] = {0.9, 1.0, 1.1}, one_factor[] = {1.0};
static const struct dpb_measured worker = {.ready_s = ready_s,
                                           .ready_bytes = ready_bytes,
                                           .n_ready = 3,
                                           .compute_s = 0.095,
                                           .update_s = 0.005,
                                           .factors = one_factor,
                                           .n_factors = 1};
/* All gradients at once, without computing and updating. */
static const double at_once_s[] = {0}, all_bytes[] = {100 * MB};
static const struct dpb_measured idle = {.ready_s = at_once_s,
                                         .ready_bytes = all_bytes,
                                         .n_ready = 1,
                                         .factors = one_factor,
                                         .n_factors = 1};

static const struct dpb_cost free_link = {.bytes_per_s = INFINITY};
static const struct dpb_cost gigabyte = {.bytes_per_s = 1e9, .latency_s = 20e-6};

static struct dpb_prediction_case make_case(enum dpb_way way, uint32_t workers, double bucket)
{
    return (struct dpb_prediction_case){.way = way,
                                        .workers = workers,
                                        .per_machine = 1,
                                        .bucket_bytes = bucket,
                                        .outside = gigabyte,
                                        .inside = free_link,
                                        .host = free_link,
                                        .compute_scale = 1};
}

static void assert_near(double is, double should, double share)
{
    if (!(fabs(is - should) <= share * fabs(should) + 1e-15))
        fail_msg("%.12g should be %.12g", is, should);
}

static double step_of(const struct dpb_measured *measured, const struct dpb_prediction_case *c)
{
    struct dpb_predicted predicted;
    assert_int_equal(dpb_predict_mean(measured, c, false, &predicted), DPB_OK);
    assert_near(predicted.own_s + predicted.exposed_s, predicted.step_s, 1e-12);
    return predicted.step_s;
}

/* An exchange that costs nothing leaves the step of one worker. */
TEST(free_links_leave_one_workers_step)
{
    for (int way = DPB_WAY_ALONE; way <= DPB_WAY_SERVERS; way++)
        for (uint32_t w = 1; w <= 1024; w *= 4) {
            struct dpb_prediction_case c = make_case((enum dpb_way)way, w, 4 * MB);
            c.outside = free_link;
            /* Updates of shards are shared. */
            double update_s = way == DPB_WAY_SERVERS ? 0.005 / w : 0.005;
            assert_near(step_of(&worker, &c), 0.095 + update_s, 1e-9);
            c.per_machine = 4;
            assert_near(step_of(&worker, &c), 0.095 + update_s, 1e-9);
            c.shard = way == DPB_WAY_MEMORY || way == DPB_WAY_RING;
            update_s = c.shard > 0 ? 0.005 / w : update_s;
            assert_near(step_of(&worker, &c), 0.095 + update_s, 1e-9);
        }
    const struct dpb_prediction_case alone = make_case(DPB_WAY_ALONE, 1024, 4 * MB);
    assert_near(step_of(&worker, &alone), 0.1, 1e-12);
}

/* Without computing, one bucket takes as long as the formulas say (a: latency, M / B: bytes). */
TEST(one_bucket_takes_what_the_formulas_say)
{
    const double a = 20e-6, m = 0.1;
    for (uint32_t p = 2; p <= 1024; p *= 2) {
        struct dpb_prediction_case c = make_case(DPB_WAY_RING, p, 100 * MB);
        assert_near(step_of(&idle, &c), 2 * (p - 1) * a + 2.0 * (p - 1) / p * m, 1e-9);
        c.shard = 1; /* the same bytes */
        assert_near(step_of(&idle, &c), 2 * (p - 1) * a + 2.0 * (p - 1) / p * m, 1e-9);
        c.shard = 2; /* weights in fp32 behind gradients in bf16 */
        assert_near(step_of(&idle, &c), 2 * (p - 1) * a + 3.0 * (p - 1) / p * m, 1e-9);
        c.shard = 0;
        c.way = DPB_WAY_SERVERS;
        assert_near(step_of(&idle, &c), 2 * a + 2.0 * (p - 1) / p * m, 1e-9);
        c.servers = 1; /* pull after push: nothing overlaps */
        assert_near(step_of(&idle, &c), 2 * a + 2 * p * m, 1e-9);
        c.way = DPB_WAY_HIERARCHICAL;
        c.per_machine = 4;
        c.inside = (struct dpb_cost){.bytes_per_s = 10e9, .latency_s = 1e-6};
        if (p < 8)
            continue;
        double n = p / 4.0;
        assert_near(step_of(&idle, &c),
                    2 * (3.0 / 4 * m / 10 + 1e-6) + 2 * (n - 1) * a + 2 * (n - 1) / n * m, 1e-9);
    }
}

/* When the last worker of a ring over machines of `l` has all: each worker sends a part on once it
 * has come and the part before has left. */
static double ring_by_hand(const struct dpb_prediction_case *c)
{
    double arrived_s[64] = {0}, left_s[64] = {0}, last_s = 0;
    const uint32_t w = c->workers;
    for (uint32_t round = 0; round < 2 * (w - 1); round++) {
        double next_s[64];
        for (uint32_t i = 0; i < w; i++) {
            const bool across = (i + 1) % c->per_machine == 0;
            const struct dpb_cost *hop = across ? &c->outside : &c->inside;
            left_s[i] = fmax(arrived_s[i], left_s[i]) + c->bucket_bytes / w / hop->bytes_per_s;
            next_s[(i + 1) % w] = left_s[i] + hop->latency_s;
            last_s = fmax(last_s, next_s[(i + 1) % w]);
        }
        memcpy(arrived_s, next_s, sizeof next_s);
    }
    return last_s;
}

/* Where most hops of a ring are within machines, few rounds take a network's latency. */
TEST(rings_have_two_kinds_of_hops)
{
    static const double bytes[] = {64e3, 1 * MB, 100 * MB};
    static const double all[] = {0.0};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        const struct dpb_measured one = {.ready_s = all,
                                         .ready_bytes = &bytes[i],
                                         .n_ready = 1,
                                         .factors = one_factor,
                                         .n_factors = 1};
        struct dpb_prediction_case c = make_case(DPB_WAY_RING, 64, bytes[i]);
        c.per_machine = 8;
        c.outside.latency_s = 50e-6;
        c.inside = (struct dpb_cost){.bytes_per_s = 10e9, .latency_s = 2e-6};
        assert_near(step_of(&one, &c), ring_by_hand(&c), 0.03);
    }
}

/* Many buckets fill the link: pushes and pulls of servers overlap, latencies hide. */
TEST(many_buckets_overlap)
{
    struct dpb_prediction_case c = make_case(DPB_WAY_SERVERS, 8, 100 * MB / 256);
    for (c.servers = 1; c.servers <= 16; c.servers *= 2) {
        const double busy_s = fmax(0.1, 8 * 0.1 / c.servers);
        assert_near(step_of(&idle, &c), busy_s * 257 / 256 + 40e-6, 1e-6);
    }
    c = make_case(DPB_WAY_RING, 8, 100 * MB / 256);
    const double ring_s = 2 * 7.0 / 8 * 0.1;
    assert_true(step_of(&idle, &c) >= ring_s);
    assert_near(step_of(&idle, &c), ring_s + 14 * 20e-6, 0.01);
    struct dpb_prediction_case one = c;
    one.bucket_bytes = 100 * MB;
    c.helper = true; /* what comes last, 70 MB, cannot be hidden */
    assert_true(step_of(&worker, &c) > 0.090 + 0.7 * ring_s);
    assert_true(step_of(&worker, &c) < 0.095 + 0.75 * ring_s);
    assert_true(step_of(&worker, &one) > 0.095 + ring_s);
}

/* With a core for communication each bucket of two workers' ring, one after the other. */
TEST(buckets_queue)
{
    const double latency_s = 20e-6;
    struct dpb_prediction_case c = make_case(DPB_WAY_RING, 2, 10 * MB);
    double link_s = 0, helper_s = 0;
    c.helper = true;
    c.outside.latency_s = latency_s;
    /* Oracle: rounds in the order in which they can begin; the second round of a bucket waits for
     * the latency of its first, in which the next bucket's first round may pass it. */
    double at_s[10], through_s[10];
    int round[10] = {0};
    for (int b = 0; b < 10; b++)
        at_s[b] = b < 1 ? 0.040 : b < 3 ? 0.060 : 0.090;
    for (int n = 0; n < 20; n++) {
        int next = -1;
        for (int b = 0; b < 10; b++)
            if (round[b] < 2 && (next < 0 || at_s[b] < at_s[next]))
                next = b;
        link_s = fmax(link_s, at_s[next]) + 0.005;
        at_s[next] = through_s[next] = link_s + latency_s;
        round[next]++;
    }
    for (int n = 0; n < 10; n++) { /* updates in the order of their ends */
        int first = 0;
        for (int b = 1; b < 10; b++)
            if (through_s[b] < through_s[first])
                first = b;
        helper_s = fmax(helper_s, through_s[first]) + 0.0005;
        through_s[first] = INFINITY;
    }
    assert_near(step_of(&worker, &c), helper_s, 1e-9);
    /* Without that core the second rounds wait for the next layer, or for backward's end. */
    c.helper = false;
    assert_true(step_of(&worker, &c) >= helper_s - 0.0005);
}

/* The slowest of W workers decides: against all outcomes of W draws. */
TEST(the_slowest_worker_decides)
{
    struct dpb_measured noisy = worker;
    noisy.factors = factors;
    noisy.n_factors = 3;
    struct dpb_prediction_case c = make_case(DPB_WAY_RING, 3, 100 * MB);
    struct dpb_predicted one, together;
    double sum_s = 0, mean_s = 0;
    for (int draw = 0; draw < 27; draw++) {
        double largest =
            fmax(factors[draw % 3], fmax(factors[draw / 3 % 3], factors[draw / 9 % 3]));
        assert_int_equal(dpb_predict_step(&noisy, &c, largest, 0, &one), DPB_OK);
        sum_s += one.step_s;
    }
    assert_near(step_of(&noisy, &c), sum_s / 27, 1e-12);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dpb_predict_step(&noisy, &c, factors[i], 0, &one), DPB_OK);
        mean_s += one.step_s / 3;
    }
    assert_int_equal(dpb_predict_mean(&noisy, &c, true, &together), DPB_OK);
    assert_near(together.step_s, mean_s, 1e-12);
    assert_true(mean_s < sum_s / 27);
    c.workers = 1 << 20; /* beyond what was measured: the slowest measured step */
    c.outside = free_link;
    assert_near(step_of(&noisy, &c), 1.1 * 0.095 + 0.005, 1e-6);
}

/* By hand: forward 30 ms, backward 65, update 5; a link of 1 GB/s. */
TEST(controls_know_times_and_bytes)
{
    struct dpb_measured m = worker;
    m.backward_s = 0.065;
    struct dpb_prediction_case c = make_case(DPB_WAY_RING, 4, 40 * MB); /* the last bucket: 20 MB */
    assert_near(dpb_predict_link_s(&m, &c), 0.150, 1e-9);
    assert_near(dpb_predict_simple_s(&m, &c), 0.030 + 0.150 + 0.2 * 0.150 + 0.005, 1e-9);
    c.outside.bytes_per_s = 10e9; /* hidden behind backward */
    c.host = gigabyte;            /* no control knows it */
    assert_near(dpb_predict_simple_s(&m, &c), 0.095 + 0.2 * 0.015 + 0.005, 1e-9);
    c.way = DPB_WAY_SERVERS;
    assert_near(dpb_predict_link_s(&m, &c), 0.015, 1e-9);
    c.servers = 1; /* each way is a link's direction */
    assert_near(dpb_predict_link_s(&m, &c), 4 * 0.1 / 10, 1e-9);
    c.way = DPB_WAY_ALONE;
    assert_near(dpb_predict_simple_s(&m, &c), 0.1, 1e-9);
    c.way = DPB_WAY_MEMORY;
    c.per_machine = 4;
    c.inside.bytes_per_s = 1e9;
    assert_near(dpb_predict_link_s(&m, &c), 0.150, 1e-9);
    m.backward_s = NAN;
    assert_true(isnan(dpb_predict_simple_s(&m, &c)));
}

TEST(least_bandwidth_is_just_enough)
{
    for (int way = DPB_WAY_RING; way <= DPB_WAY_SERVERS; way++) {
        struct dpb_prediction_case c = make_case((enum dpb_way)way, 16, 4 * MB);
        struct dpb_predicted predicted;
        double least;
        assert_int_equal(dpb_predict_least_bandwidth(&worker, &c, 0.05, &least), DPB_OK);
        assert_true(least > 1e8 && least < 1e11);
        c.outside.bytes_per_s = least;
        assert_int_equal(dpb_predict_mean(&worker, &c, false, &predicted), DPB_OK);
        assert_near(predicted.exposed_s / predicted.step_s, 0.05, 0.01);
        c.outside.latency_s = 1;
        assert_int_equal(dpb_predict_least_bandwidth(&worker, &c, 0.05, &least), DPB_OK);
        assert_true(isinf(least));
    }
}

/* Latency and bandwidth come back from times that were made of them. */
TEST(fit_finds_the_link)
{
    static const double bytes[] = {8, 1024, 65536, 1 << 20, 4 << 20};
    for (int way = DPB_WAY_RING; way <= DPB_WAY_SERVERS; way++) {
        struct dpb_prediction_case c = make_case((enum dpb_way)way, 4, 4 << 20);
        struct dpb_cost cost;
        double time_s[5], error;
        for (int i = 0; i < 5; i++) {
            struct dpb_measured one = idle;
            one.ready_bytes = &bytes[i];
            time_s[i] = step_of(&one, &c);
        }
        assert_int_equal(dpb_predict_fit(&c, bytes, time_s, 5, &cost, &error), DPB_OK);
        assert_near(cost.bytes_per_s, 1e9, 1e-6);
        assert_near(cost.latency_s, 20e-6, 1e-6);
        assert_near(error, 0, 1e-9);
        time_s[4] *= 1.1;
        assert_int_equal(dpb_predict_fit(&c, bytes, time_s, 5, &cost, &error), DPB_OK);
        assert_true(error > 0.001 && error < 0.1);
        assert_int_equal(dpb_predict_fit(&c, bytes, time_s, 1, &cost, &error), DPB_USAGE);
    }
}

/* Work for the thread comes on top where there is no core for communication. */
TEST(host_costs_are_the_threads)
{
    struct dpb_prediction_case c = make_case(DPB_WAY_RING, 4, 4 * MB);
    c.outside = free_link;
    c.host.bytes_per_s = 1e10;
    assert_near(step_of(&worker, &c), 0.1 + 1.5 * 100 * MB * 1e-10, 1e-9);
    c.host = (struct dpb_cost){.bytes_per_s = INFINITY, .latency_s = 1e-6};
    assert_near(step_of(&worker, &c), 0.1 + 25 * 6 * 1e-6, 1e-9); /* a message a round */
    c.way = DPB_WAY_SERVERS;
    c.workers = 1001; /* pushes and pulls of 1000 messages each */
    assert_near(step_of(&worker, &c), 0.095 + 0.005 / 1001 + 25 * 2 * 1000 * 1e-6, 1e-9);
    c = make_case(DPB_WAY_RING, 4, 4 * MB);
    c.outside = free_link;
    c.host.bytes_per_s = 1e10;
    c.helper = true; /* all but what follows the last gradients is hidden */
    assert_true(step_of(&worker, &c) < 0.1 + 1.5 * 100 * MB * 1e-10);
}

/* Two halves, and half of what all their links could carry between them. */
TEST(the_cable_between_halves)
{
    const double a = 20e-6, m = 0.1;
    struct dpb_prediction_case c = make_case(DPB_WAY_RING, 8, 100 * MB);
    c.uplink = 2;
    assert_near(step_of(&idle, &c), 14 * a + 14.0 / 8 * m, 1e-9); /* one hop each way */
    c.uplink = 8;                                                 /* 4 x 1 GB/s / 8: half a link */
    assert_near(step_of(&idle, &c), 14 * a + 2 * 14.0 / 8 * m, 1e-9);
    c.workers = 2; /* one host a half: the cable is half a link */
    c.uplink = 2;
    assert_near(step_of(&idle, &c), 2 * a + 2 * m, 1e-9);
    c.workers = 8;
    c.way = DPB_WAY_SERVERS;
    c.uplink = 4; /* 4 x 4 / 8 of a bucket over one link's rate, where a link carries 7 / 8 */
    assert_near(step_of(&idle, &c), 2 * a + 2 * 2 * m, 1e-9);
    c.uplink = 1; /* hidden behind the links */
    assert_near(step_of(&idle, &c), 2 * a + 2 * 7.0 / 8 * m, 1e-9);
    c.servers = 8; /* all servers in the other half: 8 M over 8 links / 4 */
    c.uplink = 4;
    assert_near(step_of(&idle, &c), 2 * a + 2 * 4 * m, 1e-9);
    c.servers =
        2; /* 5 of 10 hosts push to the other half: 5 M over 5 links / 4, or 8 / 2 a server */
    assert_near(step_of(&idle, &c), 2 * a + 2 * 4 * m, 1e-9);
    c.uplink = 8;
    assert_near(step_of(&idle, &c), 2 * a + 2 * 8 * m, 1e-9);
    c.way = DPB_WAY_HIERARCHICAL;
    c.per_machine = 2;
    c.servers = 0; /* rings of 4 machines, at half of a link: 2 x 3 / 4 M */
    c.uplink = 4;
    assert_near(step_of(&idle, &c), 6 * a + 2 * 6.0 / 4 * m, 1e-9);
}

/* Published algorithms, one bucket. */
TEST(models_take_what_their_formulas_say)
{
    const double a = 20e-6, m = 0.1;
    struct dpb_prediction_case c = make_case(DPB_WAY_DEVICES, 8, 100 * MB);
    assert_near(step_of(&idle, &c), 14 * a + 14.0 / 8 * m, 1e-9); /* a ring */
    c.workers = 1024; /* 20 latencies of trees against 2046 */
    assert_near(step_of(&idle, &c), 20 * a + 2 * m, 1e-9);
    c.per_machine = 8; /* 7 of 8 hops within; the trees' leaves are chains of 8 */
    c.inside = (struct dpb_cost){.bytes_per_s = 100e9, .latency_s = 1e-6};
    assert_near(step_of(&idle, &c), 2 * (7 * 1e-6 + 7 * a) + 2 * m, 1e-9);
    c.workers = 8; /* one machine */
    assert_near(step_of(&idle, &c), 14 * (1e-6 + m / 100 / 8), 1e-9);
    c.way = DPB_WAY_REPLICATED; /* 7 copies to the owner, 7 back */
    assert_near(step_of(&idle, &c), 2 * (7 * m / 100 + 1e-6), 1e-9);
    c.bucket_bytes = 100 * MB / 800; /* owners take turns: 7 / 8 of all bytes a link and way */
    assert_near(step_of(&idle, &c), 7.0 / 8 * m / 100, 0.03);
    c = make_case(DPB_WAY_LOCAL_SERVERS, 16, 100 * MB);
    c.per_machine = 4;
    c.inside = (struct dpb_cost){.bytes_per_s = 10e9, .latency_s = 1e-6};
    const double inside_s = 2 * (3.0 / 4 * m / 10 + 1e-6);
    assert_near(step_of(&idle, &c), inside_s + 2 * (a + 3.0 / 4 * m), 1e-9);
    c.servers = 2; /* four machines push to two: 2 M a server */
    assert_near(step_of(&idle, &c), inside_s + 2 * (a + 2 * m), 1e-9);
}

/* Devices exchange without the worker's thread, and update behind it. */
TEST(devices_exchange_beside_the_thread)
{
    struct dpb_prediction_case c = make_case(DPB_WAY_DEVICES, 8, 4 * MB);
    c.outside = free_link;
    c.host = gigabyte;
    assert_near(step_of(&worker, &c), 0.095, 1e-9); /* the last updates are 70 % of 5 ms */
    c.way = DPB_WAY_LOCAL_SERVERS;
    c.per_machine = 4;
    c.host = free_link;
    assert_near(step_of(&worker, &c), 0.095 + 0.005 / 2, 1e-9);
}

/* A hundredth of the bytes; a core encodes 2 GB/s and decodes 10. */
TEST(codecs_have_a_share_and_a_speed)
{
    const double a = 20e-6, m = 0.1, encode_s = 0.05, decode_s = 0.01;
    struct dpb_prediction_case c = make_case(DPB_WAY_RING, 8, 100 * MB);
    c.codec = (struct dpb_codec_cost){0.01, 2e9, 10e9};
    assert_near(step_of(&idle, &c), encode_s + 7 * (a + 0.01 * m) + 8 * decode_s, 1e-9);
    c.codec.decode_bytes_per_s = NAN; /* summed */
    assert_near(step_of(&idle, &c), encode_s + 14 * a + 14.0 / 8 * 0.01 * m, 1e-9);
    assert_near(dpb_predict_link_s(&idle, &c), 14.0 / 8 * 0.01 * m, 1e-9); /* bytes alone */
    c.codec.decode_bytes_per_s = 10e9;
    assert_near(dpb_predict_link_s(&idle, &c), 7 * 0.01 * m, 1e-9);
    c.way = DPB_WAY_SERVERS;
    assert_near(step_of(&idle, &c), encode_s + 2 * a + 7.0 / 8 * 1.01 * m + decode_s, 1e-9);
    c.servers = 2;
    assert_near(step_of(&idle, &c), encode_s + 2 * a + 4 * 1.01 * m + 4 * decode_s, 1e-9);
}

TEST(too_many_buckets_are_refused)
{
    struct dpb_prediction_case c = make_case(DPB_WAY_RING, 2, 1024);
    struct dpb_predicted predicted;
    assert_int_equal(dpb_predict_step(&worker, &c, 1, 0, &predicted), DPB_USAGE);
}

TEST_MAIN(silence, NULL)
