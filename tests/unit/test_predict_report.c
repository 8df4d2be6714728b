/* test_predict_report.c - the document of `dpbench predict` from made-up results: what it takes
 * from them, what it refuses by name, and how long it takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "lib/accelerator/accelerator.h"
#include "lib/capture.h"
#include "lib/documented.h"
#include "lib/printed.h"
#include "lib/says.h"
#include "lib/test.h"
#include "plan/delay.h"
#include "study/predict/emulated_run.h"
#include "study/predict/predict_report.h"

/* 20 ms a step: forward 8, backward 10, update 2. 25 million elements in fp32, in two parts. */
static const char result_text[] =
    "{'schema': 'dpbench.result/1', 'status': 'ok', 'world': {'workers': 1},"
    " 'strategy': {'name': 'independent', 'consistency': 'none'},"
    " 'model': {'name': 'made_up', 'parameters': 25000000},"
    " 'batch': {'per_worker': 16, 'accumulate': 2}, 'timing': {'steps': 4,"
    " 'step_ns': [18000000, 22000000, 19000000, 21000000],"
    " 'breakdown_ns': {'backward': 10000000, 'optimizer': 2000000, 'comm_exposed': 0},"
    " 'ready': {'elements': [5000000, 25000000], 'ns': [12000000, 18000000]}},"
    " 'config': {'optimizer': {}, 'comm': {'bucket': {'value': 4000000}, 'gradient': {'value': "
    "'auto'}},"
    " 'run': {'precision': {'value': 'fp32'}, 'comm_cores': {'value': 0}}}}";

static json_t *parse(const char *text)
{
    json_error_t error;
    char quoted[2048];
    snprintf(quoted, sizeof quoted, "%s", text);
    for (char *at = quoted; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    json_t *json = json_loads(quoted, 0, &error);
    if (json == NULL)
        fail_msg("%s", error.text);
    return own_json(json);
}

static struct dpb_predict_request make_request(const json_t *result)
{
    return (struct dpb_predict_request){.path = "one.json",
                                        .result = result,
                                        .links = {{.name = "given", .cost = {1.25e9, 50e-6}}},
                                        .n_links = 1,
                                        .per_machine = 1,
                                        .inside = {.cost = {INFINITY, 0}},
                                        .host = {INFINITY, 0}};
}

/* 100 MB in two tensors, ready 5 and 10 ms after 8 ms of forward. */
static struct dpb_accelerator_tensor tensors[] = {{"b", 5000000, 5000000},
                                                  {"a", 20000000, 10000000}};
static const struct dpb_accelerator v100 = {.name = "V100",
                                            .model = "made_up",
                                            .kind = "published",
                                            .source = "a table",
                                            .batch = 32,
                                            .forward_ns = 8000000,
                                            .backward_ns = 10000000,
                                            .tensors = tensors,
                                            .n_tensors = 2,
                                            .n_parameters = 25000000};

static struct dpb_predict_request profile_request(const struct dpb_accelerator *profile)
{
    struct dpb_predict_request request = make_request(NULL);
    request.path = "v100.json";
    request.profile = profile;
    return request;
}

static json_t *make(const struct dpb_predict_request *request)
{
    json_t *document = NULL;
    assert_int_equal(dpb_predict_report_make(request, &document), DPB_OK);
    assert_non_null(document);
    return own_json(document);
}

static const json_t *row_of(const json_t *document, const char *strategy, double workers)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(document, "rows"), i, row)
    {
        if (strcmp(dpb_json_text(row, "strategy", ""), strategy) == 0 &&
            dpb_json_number(row, "workers") == workers)
            return row;
    }
    return NULL;
}

static double number(const json_t *row, const char *name)
{
    const double value = dpb_json_number(row, name);
    assert_true(isfinite(value));
    return value;
}

static void assert_near(double is, double should, double share)
{
    if (!(fabs(is - should) <= share * fabs(should)))
        fail_msg("%.12g should be %.12g", is, should);
}

TEST(numbers_come_from_the_result)
{
    json_t *result = parse(result_text);
    struct dpb_predict_request request = make_request(result);
    json_t *document = make(&request);
    expect_documented_in(document, "docs/predicting.md");
    assert_near(number(document, "worker.batch"), 32, 0);
    assert_near(number(document, "worker.step_ns"), 20e6, 1e-9);
    assert_near(number(document, "worker.samples_per_s"), 1600, 1e-9);
    assert_near(number(document, "worker.compute_ns"), 18e6, 1e-9);
    assert_near(number(document, "worker.gradient_bytes"), 100e6, 1e-9);
    const json_t *alone = row_of(document, "independent", 8),
                 *ring = row_of(document, "ring_tcp", 8);
    assert_near(number(alone, "step_ns"), 20e6, 1e-9);
    assert_near(number(alone, "efficiency"), 1, 1e-9);
    /* The ring's bytes, in TCP's frames, after the first gradients and the first link latency. */
    const double carried_s = 2 * 7.0 / 8 * 100e6 / (1.25e9 * 1448 / 1538);
    const double step_s = number(ring, "step_ns") / 1e9;
    if (!(step_s > 0.0125 + carried_s && step_s < 0.025 + carried_s))
        fail_msg("%g s, of which the link carries %g", step_s, carried_s);
    assert_near(number(ring, "samples_per_s"), 8 * 32 / step_s, 1e-9);
    assert_near(number(ring, "efficiency"), 0.02 / step_s, 1e-9);
    /* Controls: forward, 2 x 7/8 x 100 MB behind backward's 10 ms, the last bucket, the update. */
    assert_near(number(ring, "controls.simple.step_ns") / 1e9,
                0.008 + carried_s * (1 + 1.0 / 25) + 0.002, 1e-9);
    assert_near(number(ring, "controls.simple.efficiency") *
                    number(ring, "controls.simple.step_ns"),
                20e6, 1e-9);
    assert_near(number(ring, "controls.perfect.step_ns"), 20e6, 1e-9);
    assert_true(number(ring, "low_ns") < number(ring, "step_ns"));
    assert_true(number(ring, "high_ns") > number(ring, "step_ns"));
    /* Blocks of two steps: means of 20, 20.5, 20 and 19.5 ms; Student's t with one degree. */
    assert_near(dpb_json_number(document, "worker.uncertainty"), 12.7062 * sqrt(0.125) / 20, 1e-5);
    assert_int_equal(json_array_size(json_object_get(ring, "beyond")), 1); /* 4 steps, 8 workers */
    assert_int_equal(json_array_size(json_object_get(alone, "beyond")), 0);
    assert_null(row_of(document, "shm", 2)); /* each worker is a machine */
    assert_null(row_of(document, "hierarchical", 1024));
}

/* The measured worker waited 2 ms for its communicator: workers that exchange nothing do not. */
TEST(efficiency_is_over_workers_that_exchange_nothing)
{
    json_t *result = parse(result_text);
    json_object_set_new((json_t *)(uintptr_t)dpb_json_at(result, "timing.breakdown_ns"),
                        "comm_exposed", json_real(2e6));
    json_object_set_new(json_object_get(result, "timing"), "ready", json_null()); /* even */
    struct dpb_predict_request request = make_request(result);
    request.batches[0] = 32, request.batches[1] = 64, request.n_batches = 2;
    json_t *document = make(&request);
    const json_t *row;
    size_t i, n = 0;
    json_array_foreach(json_object_get(document, "rows"), i, row)
    {
        if (strcmp(dpb_json_text(row, "strategy", ""), "independent") == 0) {
            assert_near(number(row, "efficiency"), 1, 1e-9);
            n++;
        }
    }
    assert_int_equal(n, 20);
}

/* The least link, given again, leaves what it promised. */
TEST(least_link_holds)
{
    json_t *result = parse(result_text);
    struct dpb_predict_request request = make_request(result);
    request.workers[0] = 4;
    request.n_workers = 1;
    json_t *document = make(&request);
    request.links[0].cost.bytes_per_s = number(row_of(document, "ps_cpu", 4), "least_bytes_per_s");
    document = make(&request);
    assert_near(number(row_of(document, "ps_cpu", 4), "exposed_share"), 0.05, 0.02);
}

/* Two workers of one machine, and servers on machines of their own: their link carries both. */
TEST(servers_are_on_other_machines)
{
    json_t *result = parse(result_text);
    struct dpb_predict_request request = make_request(result);
    request.per_machine = 2;
    request.inside.cost = (struct dpb_cost){5e9, 1e-6};
    request.servers = 4;
    request.workers[0] = 2;
    request.n_workers = 1;
    json_t *document = make(&request);
    const json_t *row = row_of(document, "ps_cpu", 2);
    assert_true(number(row, "step_ns") > 2 * 100e6 / (1.25e9 * 1448 / 1538) * 1e9);
    request.links[0].cost.bytes_per_s = number(row, "least_bytes_per_s");
    document = make(&request);
    assert_near(number(row_of(document, "ps_cpu", 2), "exposed_share"), 0.05, 0.02);
    request.links[0].cost = (struct dpb_cost){INFINITY, 0}; /* no link to a server is known */
    document = make(&request);
    assert_null(row_of(document, "ps_cpu", 2));
    assert_non_null(row_of(document, "shm", 2));
}

/* Two workers a machine, other batches and buckets, up to 1,024 workers, in less than 5 s of a
 * processor. */
TEST(many_cases)
{
    json_t *result = parse(result_text);
    struct dpb_predict_request request = make_request(result);
    request.per_machine = 2;
    request.inside.cost = (struct dpb_cost){5e9, 1e-6};
    request.batches[0] = 32, request.batches[1] = 64, request.n_batches = 2;
    request.buckets[0] = 1e6, request.buckets[1] = 25e6, request.n_buckets = 2;
    const clock_t began = clock();
    json_t *document = make(&request);
    assert_true(clock() - began < (SANITIZED ? 50 : 5) * CLOCKS_PER_SEC);
    const size_t n_tables = 4, n_first = 4 /* two workers: hierarchical crosses nothing */;
    assert_int_equal(json_array_size(json_object_get(document, "rows")),
                     n_tables * (n_first + 9 * 4));
    const json_t *row;
    size_t i, n_fastest = 0;
    json_array_foreach(json_object_get(document, "rows"), i, row)
    {
        assert_true(number(row, "step_ns") > 0 && number(row, "exposed_share") < 1);
        n_fastest += json_is_true(json_object_get(row, "fastest"));
    }
    assert_true(n_fastest >= 4 * 10);
    /* Twice the batch: twice the computing, marked. */
    row = json_array_get(json_object_get(document, "rows"), n_tables / 2 * (n_first + 9 * 4));
    assert_near(number(row, "step_ns"), 38e6, 1e-9);
    assert_string_equal(json_string_value(json_array_get(json_object_get(row, "beyond"), 0)),
                        "batch");
    FILE *out = tmpfile();
    dpb_predict_report_print(document, out);
    assert_true(ftell(out) > 10000);
    fclose(out);
}

TEST(measured_link)
{
    json_t *result = parse(result_text);
    /* 100 us and 1 GB/s, by a ring of two. */
    json_t *comm = parse("{'schema': 'dpbench.comm/1', 'status': 'ok', 'bucket_bytes': 4000000,"
                         " 'strategy': {'name': 'ring_tcp'},"
                         " 'world': {'workers': 2, 'servers': 0, 'machines': 2},"
                         " 'points': [{'bytes': 1000, 'buckets': 1, 'time_us': {'p50': 201}},"
                         " {'bytes': 4000000, 'buckets': 1, 'time_us': {'p50': 4200}},"
                         " {'bytes': 8000000, 'buckets': 2, 'time_us': {'p50': 9999}},"
                         " {'bytes': 250000, 'buckets': 1, 'time_us': {'p50': 450}}]}");
    struct dpb_predict_request request = make_request(result);
    request.links[0].comm = comm;
    json_t *document = make(&request);
    const json_t *link = json_array_get(json_object_get(document, "links"), 0);
    assert_near(number(link, "bytes_per_s"), 1e9, 1e-6);
    assert_near(number(link, "latency_s"), 100e-6, 1e-6);
    const json_t *beyond = json_object_get(row_of(document, "ring_tcp", 2), "beyond");
    assert_int_equal(json_array_size(beyond), 0);
    beyond = json_object_get(row_of(document, "ps_cpu", 4), "beyond"); /* workers, strategy */
    assert_int_equal(json_array_size(beyond), 2);
    /* No exchange has so many workers. */
    json_object_set_new(json_object_get(comm, "world"), "workers", json_real(4294967298));
    json_object_set_new(json_object_get(comm, "world"), "machines", json_real(4294967298));
    document = NULL;
    assert_int_equal(dpb_predict_report_make(&request, &document), DPB_USAGE);
    assert_null(document);
}

/* A data sheet's band: its corners are rows of other links and spreads. */
TEST(data_sheets_give_bands)
{
    struct dpb_accelerator wide = v100;
    struct dpb_predict_request request = profile_request(&v100), corner = request;
    request.workers[0] = corner.workers[0] = 8;
    request.n_workers = corner.n_workers = 1;
    const json_t *row = row_of(make(&request), "ring_tcp", 8), *worst;
    corner.links[0].cost.bytes_per_s /= 5;
    wide.spread = 0.04;
    corner.profile = &wide;
    worst = row_of(make(&corner), "ring_tcp", 8);
    assert_string_equal(dpb_json_text(row, "between", ""), "data sheet");
    assert_near(number(row, "low_ns"), number(row, "step_ns"), 1e-12);
    assert_near(number(row, "high_ns"), number(worst, "step_ns"), 1e-12);
    assert_near(number(row, "high_efficiency"), number(row, "efficiency"), 1e-12);
    assert_near(number(row, "low_efficiency"), number(worst, "efficiency"), 1e-12);
    /* Steps of wider spread widen the band. */
    wide.spread = 0.1;
    request.profile = &wide;
    assert_true(number(row_of(make(&request), "ring_tcp", 8), "high_ns") > number(row, "high_ns"));
    /* Within a machine it is the cost of --inside that a data sheet tells. */
    request = profile_request(&v100);
    request.per_machine = 2;
    request.inside.cost = (struct dpb_cost){5e9, 1e-6};
    const json_t *document = make(&request);
    row = row_of(document, "shm", 2);
    assert_near(number(row, "high_ns"), 18e6 + 0.04 * 0.5642 * 18e6 + 5 * 2 * 50e6 / 5, 0.2);
    assert_string_equal(dpb_json_text(row, "between", ""), "data sheet");
    assert_string_equal(dpb_json_text(row_of(document, "independent", 2), "between", ""),
                        "measured");
    char *text = printed_as(document, dpb_predict_report_print);
    expect_part(text, "link given by its data sheet, so an upper bound, buckets");
    expect_line(text, "^ +2 ring_tcp .* %  +[0-9.]+\\.\\.[0-9.]+ % ");
}

/* Steps of equal lengths and 4 KB of gradients: the exchange is two latencies of some 100 us, whose
 * times were measured 15 % or more apart from any line. */
TEST(intervals_have_the_latencys_error)
{
    json_t *result = parse(result_text);
    json_t *comm = parse("{'schema': 'dpbench.comm/1', 'status': 'ok', 'bucket_bytes': 4000000,"
                         " 'strategy': {'name': 'ring_tcp'},"
                         " 'world': {'workers': 2, 'servers': 0, 'machines': 2},"
                         " 'points': [{'bytes': 1000, 'buckets': 1, 'time_us': {'p50': 161}},"
                         " {'bytes': 10000, 'buckets': 1, 'time_us': {'p50': 252}},"
                         " {'bytes': 4000000, 'buckets': 1, 'time_us': {'p50': 4200}}]}");
    json_t *timing = json_object_get(result, "timing");
    json_object_set_new(timing, "step_ns", json_pack("[f,f,f,f]", 2e7, 2e7, 2e7, 2e7));
    json_object_set_new(timing, "ready",
                        json_pack("{s:[i], s:[i]}", "elements", 1000, "ns", 18000000));
    struct dpb_predict_request request = make_request(result);
    request.links[0].comm = comm;
    json_t *document = make(&request);
    const json_t *row = row_of(document, "ring_tcp", 2);
    const json_t *link = json_array_get(json_object_get(document, "links"), 0);
    const double latencies_ns = 2 * number(link, "latency_s") * 1e9;
    assert_true(number(link, "error") > 0.15 && latencies_ns > 150e3);
    assert_true(number(row, "high_ns") - number(row, "step_ns") > 0.15 * latencies_ns);
    assert_true(number(row, "step_ns") - number(row, "low_ns") > 0.1 * latencies_ns);
}

/* A link of `dpbench links network` has no strategy and no workers. */
TEST(measured_network)
{
    json_t *result = parse(result_text);
    json_t *network = parse("{'status': 'ok', 'network': {'ways': [{'from': 0, 'to': 1,"
                            " 'latency_s': {'median': 5e-5}, 'rate': [{'bytes': 100, 'bytes_per_s':"
                            " {'median': 1e8, 'least': 9e7, 'most': 1.1e8}}]}]}}");
    struct dpb_predict_request request = make_request(result);
    request.links[0] = (struct dpb_predict_link){.name = "l.json", .network = network};
    json_t *document = make(&request);
    char *text = printed_as(document, dpb_predict_report_print);
    expect_part(text, "link l.json (measured: 0.8 Gbit/s, 50 us; windows within 10.0 %), buckets");
    /* Its error widens no exchange within a machine, whose cost is given. */
    double high_ns[2];
    for (int i = 0; i < 2; i++) {
        struct dpb_predict_request inside = make_request(result);
        inside.per_machine = 2;
        inside.inside.cost = (struct dpb_cost){5e9, 1e-6};
        if (i == 1)
            inside.links[0] = request.links[0];
        document = make(&inside);
        high_ns[i] = number(row_of(document, "shm", 2), "high_ns");
    }
    assert_near(high_ns[0], high_ns[1], 1e-12);
}

/* The same worker as a profile: its rows are those of a result with a core for communication. */
TEST(a_profile_is_a_worker)
{
    json_t *result = parse(result_text);
    json_t *timing = json_object_get(result, "timing");
    json_object_set_new(timing, "step_ns", json_pack("[f,f,f,f]", 2e7, 2e7, 2e7, 2e7));
    json_object_set_new(
        timing, "ready",
        json_pack("{s:[i,i], s:[i,i]}", "elements", 5000000, 25000000, "ns", 13000000, 18000000));
    json_object_set_new((json_t *)(uintptr_t)dpb_json_at(result, "config.run.comm_cores"), "value",
                        json_integer(1));
    struct dpb_predict_request by_result = make_request(result),
                               by_profile = profile_request(&v100);
    by_result.buckets[0] = by_profile.buckets[0] = 4e6;
    by_result.n_buckets = by_profile.n_buckets = 1;
    by_profile.update_elements_per_s = 25000000 / 2e-3;
    json_t *a = make(&by_result), *b = make(&by_profile);
    expect_documented_in(b, "docs/predicting.md");
    assert_string_equal(dpb_json_text(a, "kind", ""), "run on device ?");
    assert_string_equal(dpb_json_text(row_of(b, "ring_tcp", 2), "kind", ""),
                        "published profile of V100");
    assert_string_equal(dpb_json_text(b, "worker.update", ""), "given");
    assert_near(number(b, "worker.step_ns"), 20e6, 1e-12);
    for (double workers = 2; workers <= 1024; workers *= 2)
        assert_near(number(row_of(b, "ring_tcp", workers), "step_ns"),
                    number(row_of(a, "ring_tcp", workers), "step_ns"), 1e-12);
}

/* The mean of the largest of n normal draws, in deviations: Harter 1961. */
TEST(a_profiles_steps_are_normal)
{
    static const double workers[] = {2, 10, 100}, largest[] = {0.5642, 1.5388, 2.5076};
    struct dpb_accelerator spread = v100;
    spread.spread = 0.1;
    struct dpb_predict_request request = profile_request(&spread);
    request.links[0].cost = (struct dpb_cost){1e15, 0};
    for (size_t i = 0; i < 3; i++) {
        request.workers[0] = workers[i];
        request.n_workers = 1;
        json_t *document = make(&request);
        assert_near(number(row_of(document, "ring_tcp", workers[i]), "step_ns"),
                    18e6 * (1 + 0.1 * largest[i]), 0.002);
        assert_near(number(row_of(document, "independent", workers[i]), "step_ns"), 18e6, 1e-9);
    }
}

/* The largest of n exponential delays of mean t is t (1 + 1/2 + ... + 1/n) on average. */
TEST(delays_make_workers_wait_for_the_slowest)
{
    static const struct {
        const char *delay;
        double mean_ns, largest_ns; /* of 8 workers */
    } rows[] = {{"constant(20 ms)", 20e6, 20e6},
                {"exponential(20 ms)", 20e6, 20e6 * 761 / 280},
                /* n! gamma(1 - 1/a) / gamma(n + 1 - 1/a), minimum 20 */
                {"pareto(20 ms, 2)", 40e6, 20e6 * 5.0922},
                {"chance(50 ms, 0.05)", 2.5e6, 50e6 * 0.336580}}; /* 1 - 0.95^8 */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_delay delay;
        struct dpb_predict_request request = profile_request(&v100);
        request.links[0].cost = (struct dpb_cost){1e15, 0};
        request.workers[0] = 8;
        request.n_workers = 1;
        request.delay = &delay;
        request.delay_text = rows[i].delay;
        assert_int_equal(dpb_delay_make(rows[i].delay, "", "all", "", 1, 0, &delay), DPB_OK);
        json_t *document = make(&request);
        const json_t *ring = row_of(document, "ring_tcp", 8);
        assert_near(number(document, "worker.delay_ns"), rows[i].mean_ns, 1e-9);
        assert_near(number(ring, "step_ns"), 18e6 + rows[i].largest_ns, 0.005);
        /* Who exchanges nothing waits for nobody; the controls know the mean. */
        assert_near(number(row_of(document, "independent", 8), "efficiency"), 1, 1e-9);
        assert_near(number(ring, "controls.simple.step_ns"), 18e6 + rows[i].mean_ns, 1e-4);
        dpb_delay_destroy(&delay);
    }
}

/* A run of two workers on device emulated, over a link of dpbench hosts. */
static const char emulated_text[] =
    "{'schema': 'dpbench.result/1', 'status': 'ok', 'strategy': {'name': 'ring_tcp'},"
    " 'world': {'workers': 2, 'servers': 0, 'oversubscribed': false, 'hosts': {'n': 2,"
    " 'rate_bytes_per_s': 1250000000, 'latency_ns': 50000, 'uplink': null, 'dilation': 2}},"
    " 'ranks': [{'machine': 0, 'role': 'worker'}, {'machine': 1, 'role': 'worker'}],"
    " 'load': {'disturbed': false}, 'batch': {'per_worker': 32, 'accumulate': 1},"
    " 'timing': {'step_ns': [90000000, 110000000],"
    " 'breakdown_ns': {'forward': 8000000, 'backward': 10000000, 'optimizer': 2000000}},"
    " 'config': {'run': {'delay': {'value': 'none'}}, 'comm': {'bucket': {'value': 4000000},"
    " 'gradient': {'value': 'auto'}, 'codec': {'value': 'none'}, 'shard': {'value': 'none'}},"
    " 'device': {'name': {'value': 'emulated'}, 'host_link': {'value': 50000000000},"
    " 'gpu_direct': {'value': false}}}}";

static const char *verdict_of(json_t *result, json_t **document)
{
    char strategy[DPB_EMULATED_STRATEGY];
    struct dpb_predict_request request = profile_request(&v100);
    request.result = result;
    request.n_links = 0;
    assert_true(dpb_emulated_is(result));
    assert_int_equal(dpb_emulated_request(result, &request, strategy), DPB_OK);
    *document = make(&request);
    assert_int_equal(json_array_size(json_object_get(*document, "rows")), 1);
    return dpb_json_text(*document, "run.verdict", "");
}

static void set(json_t *result, const char *object, const char *key, json_t *value)
{
    json_object_set_new((json_t *)(uintptr_t)dpb_json_at(result, object), key, value);
}

TEST(emulated_runs_are_predicted_from_their_profile)
{
    json_t *document, *result = parse(emulated_text);
    /* 100 MB over the ring cannot be hidden: 85 ms and more, behind 8 ms and the first bucket. */
    assert_string_equal(verdict_of(result, &document), "as predicted");
    expect_documented_in(document, "docs/predicting.md");
    const json_t *row = row_of(document, "ring_tcp", 2);
    const double step_ns = number(row, "step_ns"), link_ns = 100e6 / 1.25 * 1538 / 1448;
    assert_true(step_ns > 13e6 + link_ns && step_ns < 30e6 + link_ns);
    assert_near(number(document, "run.measured_ns"), 100e6, 1e-9);
    assert_near(number(document, "run.predicted_ns"), step_ns, 1e-12);
    /* Over 50 GB/s: 2 ms of weights before forward, and the last tensor's 80 MB behind backward. */
    assert_near(number(document, "worker.compute_ns"), 18e6 + 2e6 + 80e6 / 50, 1e-9);
    assert_near(number(document, "worker.update_ns"), 2e6, 1e-9);
    /* A link that was made has no data sheet. */
    assert_near(number(row, "high_ns"), step_ns, 1e-9);
    set(result, "timing", "step_ns", json_pack("[f]", 1.2 * step_ns));
    assert_string_equal(verdict_of(result, &document), "the network, not the strategy");
    char *text = printed_as(document, dpb_predict_report_print);
    expect_line(text, "^predicted [0-9.]+ ms, measured [0-9.]+ ms: the network, not the strategy$");
    json_object_set_new(result, "emulated", json_pack("{s:b}", "late", true));
    assert_non_null(strstr(verdict_of(result, &document), "or the machine"));
    json_object_del(result, "warnings");
    set(result, "load", "disturbed", json_true());
    assert_non_null(strstr(verdict_of(result, &document), "or the machine"));
    set(result, "timing.breakdown_ns", "backward", json_real(26e6));
    assert_non_null(strstr(verdict_of(result, &document), "neither network nor strategy"));
    set(result, "timing", "step_ns", json_pack("[f]", 0.8 * step_ns));
    assert_non_null(strstr(verdict_of(result, &document), "faster than predicted"));
}

TEST(emulated_runs_that_cannot_be_compared)
{
    static const struct {
        const char *object, *key, *value, *word;
    } rows[] = {
        {"config.run.delay", "value", "constant(1 ms)", "--delay"},
        {"config.comm.codec", "value", "topk", "--codec"},
        {"config.comm.gradient", "value", "bf16", "comm.gradient"},
        {"world", "hosts", NULL, "over which link"},
        {"strategy", "name", "ps_async", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char strategy[DPB_EMULATED_STRATEGY];
        dpb_status status;
        json_t *result = parse(emulated_text), *document = NULL;
        struct dpb_predict_request request = profile_request(&v100);
        request.result = result;
        request.n_links = 0;
        set(result, rows[i].object, rows[i].key,
            rows[i].value ? json_string(rows[i].value) : json_null());
        dpb_first_error_clear();
        status = dpb_emulated_request(result, &request, strategy);
        if (!rows[i].word) {
            assert_int_equal(status, DPB_OK);
            status = dpb_predict_report_make(&request, &document);
        }
        assert_int_equal(status, DPB_USAGE);
        expect_part(dpb_first_error(&status), rows[i].word ? rows[i].word : "'ps_async'");
    }
}

/* Gradients may be ready together, and as soon as backward begins. */
TEST(gradients_may_be_ready_at_once)
{
    json_t *result = parse(result_text);
    json_object_set_new(json_object_get(result, "timing"), "ready",
                        json_pack("{s:[i,i], s:[i,i]}", "elements", 5000000, 25000000, "ns", 0, 0));
    struct dpb_predict_request request = make_request(result);
    assert_true(number(row_of(make(&request), "ring_tcp", 8), "step_ns") > 0);
}

/* The reason names the thing. */
static void refuses(const char *path, const char *value, const char *strategy, const char *word)
{
    json_t *result = parse(result_text), *document = NULL;
    struct dpb_predict_request request = make_request(result);
    if (path != NULL) {
        char parent[32];
        const char *dot = strrchr(path, '.');
        snprintf(parent, sizeof parent, "%.*s", (int)(dot - path), path);
        json_object_set_new((json_t *)(uintptr_t)dpb_json_at(result, parent), dot + 1,
                            json_loads(value, JSON_DECODE_ANY, NULL));
    }
    if (strategy != NULL)
        request.strategies[request.n_strategies++] = strategy;
    dpb_status status;
    dpb_first_error_clear();
    assert_int_equal(dpb_predict_report_make(&request, &document), DPB_USAGE);
    assert_null(document);
    if (strstr(dpb_first_error(&status), word) == NULL)
        fail_msg("no '%s' in: %s", word, dpb_first_error(&status));
}

TEST(what_cannot_be_predicted_is_named)
{
    refuses("world.workers", "2", NULL, "run.workers=1");
    refuses("strategy.consistency", "\"asynchronous\"", NULL, "asynchronous");
    refuses("timing.steps", "0", NULL, "no timed step");
    refuses("timing.ready", "{\"elements\": [2, 1], \"ns\": [1, 2]}", NULL, "timing.ready");
    refuses("timing.ready", "{\"elements\": [1, 2], \"ns\": [2, 1]}", NULL, "timing.ready");
    refuses("timing.ready", "{\"elements\": [1, 2], \"ns\": [-1, 1]}", NULL, "timing.ready");
    refuses("batch.per_worker", "null", NULL, "batch");
    refuses("config.optimizer.clip_norm", "{\"value\": 1.0}", NULL, "optimizer.clip_norm");
    refuses("config.optimizer.name", "{\"value\": \"lars\"}", NULL, "optimizer.name = lars");
    refuses(NULL, NULL, "ps_async", "'ps_async'");
    refuses(NULL, NULL, "ring_tpc", "did you mean 'ring_tcp'");
}

TEST_MAIN(silence, NULL)
