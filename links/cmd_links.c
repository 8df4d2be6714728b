/* cmd_links.c - `dpbench links`: measures how fast bytes move on this machine, and prints how its
 * parts are connected. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "links/links.h"
#include "links/links_report.h"
#include "links/network.h"
#include "links/network_test.h"
#include "machine/cores.h"
#include "machine/memory.h"
#include "machine/topology.h"
#include "plugin/trial.h"
#include "record/facts.h"
#include "record/load_report.h"
#include "record/result.h"
#include "record/result_file.h"

enum { MAX_CPUS = 4096 };
static const uint64_t min_window_ns = 10000, max_window_ns = 10000000000;

enum part { TOPOLOGY, MEMORY, CORES, LOOPBACK, DEVICES, PARTS };
static const char *const part_names[PARTS + 1] = {"topology", "memory",  "cores",
                                                  "loopback", "devices", NULL};

/* The arguments and the machine. */
struct measuring {
    struct dpb_links_limits limits;
    struct dpb_topology *topology;
    uint16_t cpus[MAX_CPUS]; /* one hardware thread of each usable core */
    uint32_t n_cpus;
    json_t *document;
};

static json_t *add_list(json_t *object, const char *name)
{
    json_t *list = json_array();
    json_object_set_new(object, name, list);
    return list;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* The usable cores of a node, in order. */
static uint32_t cpus_of_node(const struct measuring *m, uint32_t node, uint16_t cpus[MAX_CPUS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_cpus; i++)
        if (node == UINT32_MAX || dpb_topology_node_of(m->topology, m->cpus[i]) == node)
            cpus[n++] = m->cpus[i];
    return n;
}

static dpb_status memory_row(const struct measuring *m, const struct dpb_links_limits *limits,
                             const uint16_t *cpus, uint32_t n, uint16_t toucher, uint32_t cpu_node,
                             uint32_t memory_node, json_t *rows)
{
    struct dpb_links_memory memory = {.cpu_node = cpu_node, .memory_node = memory_node};
    dpb_log(DPB_LOG_DEBUG, "links: memory, %u of %u cores", n, m->n_cpus);
    DPB_TRY(dpb_links_memory_measure(limits, cpus, n, toucher, &memory));
    json_array_append_new(rows, dpb_links_memory_to_json(&memory));
    return DPB_OK;
}

/* Measures other nodes' memory from all cores of this node, at the largest size alone. */
static dpb_status memory_across(const struct measuring *m, uint32_t node, const uint16_t *cpus,
                                uint32_t n, json_t *rows)
{
    struct dpb_links_limits largest = m->limits;
    uint16_t others[MAX_CPUS];
    largest.min_bytes = largest.max_bytes;
    for (uint32_t other = 0; other < dpb_topology_nodes(m->topology); other++)
        if (other != node && cpus_of_node(m, other, others) > 0)
            DPB_TRY(memory_row(m, &largest, cpus, n, others[0], node, other, rows));
    return DPB_OK;
}

static dpb_status measure_memory(struct measuring *m)
{
    json_t *rows = add_list(m->document, "memory");
    uint32_t nodes = dpb_topology_nodes(m->topology);
    uint16_t cpus[MAX_CPUS];
    for (uint32_t node = 0; node < nodes; node++) {
        uint32_t n = cpus_of_node(m, node, cpus);
        if (n == 0)
            continue;
        DPB_TRY(memory_row(m, &m->limits, cpus, 1, cpus[0], node, node, rows));
        if (n > 1)
            DPB_TRY(memory_row(m, &m->limits, cpus, n, UINT16_MAX, node, node, rows));
        DPB_TRY(memory_across(m, node, cpus, n, rows));
    }
    if (nodes < 2)
        return DPB_OK;
    return memory_row(m, &m->limits, m->cpus, m->n_cpus, UINT16_MAX, UINT32_MAX, UINT32_MAX, rows);
}

/* ---- cores and loopback -------------------------------------------------------------------- */

/* Measures the latency of all pairs of up to DPB_LINKS_CORES cores, evenly spread, and the rate of
 * one pair for each thing that cores can share. */
static dpb_status measure_cores(struct measuring *m)
{
    json_t *cores = json_object();
    json_object_set_new(m->document, "cores", cores);
    json_t *latencies = add_list(cores, "latency"), *rates = add_list(cores, "rate");
    uint32_t n = m->n_cpus < DPB_LINKS_CORES ? m->n_cpus : DPB_LINKS_CORES;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n; k++) {
            struct dpb_links_cores pair = {.a = m->cpus[(uint64_t)i * m->n_cpus / n],
                                           .b = m->cpus[(uint64_t)k * m->n_cpus / n]};
            const char *shared = dpb_topology_shared(m->topology, pair.a, pair.b);
            DPB_TRY(dpb_links_cores_latency(&m->limits, pair.a, pair.b, &pair.latency));
            json_t *latency = dpb_links_latency_to_json(&pair, shared);
            json_array_append_new(latencies, latency);
            if (dpb_json_find(rates, "shared", json_object_get(latency, "shared")))
                continue;
            DPB_TRY(dpb_links_cores_rate(&m->limits, &pair));
            json_array_append_new(rates, dpb_links_cores_to_json(&pair, shared));
        }
    }
    return DPB_OK;
}

static dpb_status measure_loopback(struct measuring *m)
{
    struct dpb_links_loopback loopback;
    uint16_t a = m->cpus[0], b = m->cpus[m->n_cpus > 1];
    DPB_TRY(dpb_links_loopback_measure(&m->limits, a, b, &loopback));
    json_object_set_new(m->document, "loopback", dpb_links_loopback_to_json(&loopback, a, b));
    return DPB_OK;
}

/* ---- devices ------------------------------------------------------------------------------- */

static json_t *device_to_json(const struct dpb_monitor_ops *monitor,
                              const struct dpb_link_device *device)
{
    struct dpb_gpu_use use;
    dpb_gpu_open(monitor, device->pci_address, &use);
    dpb_gpu_begin(&use);
    json_t *driver = dpb_gpu_moment_to_json(&use);
    dpb_gpu_end(&use);
    return json_pack("{s:o, s:s, s:I, s:o}", "name", dpb_json_string(device->name), "pci_address",
                     device->pci_address, "memory_bytes", (json_int_t)device->memory_bytes,
                     "driver", driver);
}

/* The way that the GPUs' driver reports, or else the way between the PCI devices. */
static json_t *paths_of(const struct measuring *m, const struct dpb_monitor_ops *monitor,
                        const struct dpb_link_device *devices, uint32_t n, uint32_t from)
{
    json_t *paths = json_array();
    for (uint32_t to = 0; to < n; to++) {
        const char *a = devices[from].pci_address, *b = devices[to].pci_address;
        char path[DPB_GPU_PATH] = "?", problem[DPB_GPU_TEXT];
        if (monitor)
            monitor->path(a, b, path, problem);
        json_array_append_new(
            paths, json_string(path[0] != '?' ? path : dpb_topology_path(m->topology, a, b)));
    }
    return paths;
}

static dpb_status describe_devices(const struct measuring *m, const struct dpb_device_ops *ops,
                                   uint32_t n, json_t *plugin)
{
    struct dpb_link_device devices[DPB_LINKS_DEVICES];
    json_t *list = add_list(plugin, "devices");
    for (uint32_t i = 0; i < n; i++)
        DPB_TRY(ops->links->describe(i, &devices[i]));
    for (uint32_t i = 0; i < n; i++) {
        json_t *device = device_to_json(ops->monitor, &devices[i]);
        json_object_set_new(device, "paths", paths_of(m, ops->monitor, devices, n, i));
        json_array_append_new(list, device);
    }
    return DPB_OK;
}

static dpb_status measure_host_copies(const struct measuring *m,
                                      const struct dpb_device_links *links, uint32_t n,
                                      json_t *plugin)
{
    json_t *rows = add_list(plugin, "host");
    for (uint32_t i = 0; i < n; i++) {
        for (int pinned = 1; pinned >= 0; pinned--) {
            struct dpb_links_host host;
            DPB_TRY(dpb_links_host_measure(&m->limits, links, i, pinned == 1, &host));
            json_array_append_new(rows, dpb_links_host_to_json(&host));
        }
    }
    return DPB_OK;
}

/* Measures each device alone, and all pairs as peers and through the host. One order of a pair is
 * enough, because both ways are measured. */
static dpb_status measure_pairs(const struct measuring *m, const struct dpb_device_links *links,
                                uint32_t n, json_t *plugin)
{
    json_t *rows = add_list(plugin, "pairs");
    for (uint32_t from = 0; from < n; from++) {
        for (uint32_t to = from; to < n; to++) {
            int last = from == to ? 1 : 0; /* within a device there is one way */
            for (int direct = 1; direct >= last; direct--) {
                struct dpb_links_pair pair;
                DPB_TRY(dpb_links_pair_measure(&m->limits, links, from, to, direct == 1, &pair));
                json_array_append_new(rows, dpb_links_pair_to_json(&pair));
            }
        }
    }
    return DPB_OK;
}

static dpb_status measure_plugin(const struct measuring *m, const struct dpb_plugin *device,
                                 json_t *list)
{
    const struct dpb_device_ops *ops = device->ops;
    char text[DPB_REASON_BYTES];
    const char *missing = dpb_trial_missing(device, text);
    json_t *plugin = json_pack("{s:s, s:s?}", "name", device->name, "missing", missing);
    json_array_append_new(list, plugin);
    if (missing)
        return DPB_OK;
    uint32_t n = 0;
    DPB_TRY(ops->links->count(&n));
    if (n > DPB_LINKS_DEVICES) {
        dpb_warn("devices_left_out", "%s has %u devices; the first %u are measured", device->name,
                 n, (unsigned)DPB_LINKS_DEVICES);
        n = DPB_LINKS_DEVICES;
    }
    DPB_TRY(describe_devices(m, ops, n, plugin));
    DPB_TRY(measure_host_copies(m, ops->links, n, plugin));
    return measure_pairs(m, ops->links, n, plugin);
}

static dpb_status measure_devices(struct measuring *m)
{
    json_t *list = add_list(m->document, "devices");
    struct dpb_plugin_row *rows = NULL;
    size_t n = 0;
    DPB_TRY(dpb_plugin_list(&dpb_host, 1u << DPB_PLUGIN_DEVICE, NULL, &rows, &n));
    dpb_status status = DPB_OK;
    for (size_t i = 0; i < n && status == DPB_OK; i++) {
        const struct dpb_plugin *plugin = rows[i].plugin;
        if (!plugin)
            json_array_append_new(list,
                                  json_pack("{s:s, s:s}", "name", strrchr(rows[i].path, '/') + 1,
                                            "missing", rows[i].reason));
        else if (((const struct dpb_device_ops *)plugin->ops)->links)
            status = measure_plugin(m, plugin, list);
    }
    free(rows);
    for (const struct dpb_plugin_not_built *row = dpb_plugins_not_built; row->name; row++)
        if (row->kind == DPB_PLUGIN_DEVICE)
            json_array_append_new(list, json_pack("{s:s, s:s+}", "name", row->name, "missing",
                                                  "it was not built: ", row->reason));
    return status;
}

/* ---- the command --------------------------------------------------------------------------- */

/* Two buffers of a quarter each leave room for others: a machine that swaps measures its disk. */
static void limit_sizes(struct dpb_links_limits *limits)
{
    struct dpb_machine_memory memory;
    uint64_t wanted = limits->max_bytes;
    dpb_memory_look("", &memory);
    while (limits->max_bytes > dpb_links_size(0) && limits->max_bytes > memory.available_bytes / 4)
        limits->max_bytes /= 4;
    if (limits->max_bytes < wanted)
        dpb_warn("sizes_left_out", "%.0f MiB of memory are available: sizes end at %.3g MiB",
                 (double)memory.available_bytes / 1048576, (double)limits->max_bytes / 1048576);
}

/* The parts behind it are measured all the same, and may fail for reasons of their own. */
static void keep_failure(struct measuring *m, const char *part)
{
    json_t *failed = json_object_get(m->document, "failed");
    if (!failed)
        failed = add_list(m->document, "failed");
    json_array_append_new(failed, json_pack("{s:s, s:o}", "part", part, "error",
                                            dpb_json_string(dpb_first_error(NULL))));
    dpb_first_error_clear();
}

/* Why the command failed. */
static const char *error_of(const struct measuring *m, dpb_status status)
{
    const json_t *first = json_array_get(json_object_get(m->document, "failed"), 0);
    return first && status != DPB_INTERRUPTED ? dpb_json_text(first, "error", NULL)
                                              : dpb_stop_error(status);
}

static dpb_status measure_parts(struct measuring *m, const bool wanted[PARTS])
{
    static dpb_status (*const measure[PARTS])(struct measuring *) = {[MEMORY] = measure_memory,
                                                                     [CORES] = measure_cores,
                                                                     [LOOPBACK] = measure_loopback,
                                                                     [DEVICES] = measure_devices};
    const struct dpb_cores_job alone = {.n_workers = 1, .learners = 1};
    DPB_TRY(dpb_topology_open(NULL, &m->topology));
    if (wanted[TOPOLOGY])
        json_object_set_new(m->document, "topology", dpb_topology_describe(m->topology));
    m->n_cpus = dpb_cores_of(&alone, 0, m->cpus, MAX_CPUS);
    if (m->n_cpus == 0)
        return dpb_fail(DPB_FAILED, "no core of this machine is usable by this process");
    dpb_status status = DPB_OK; /* of the first part that fails */
    for (int part = MEMORY; part < PARTS; part++) {
        if (!wanted[part])
            continue;
        DPB_TRY(dpb_links_stopped(&m->limits));
        const dpb_status measured = measure[part](m);
        if (measured == DPB_INTERRUPTED)
            return measured;
        if (measured != DPB_OK)
            keep_failure(m, part_names[part]);
        status = status != DPB_OK ? status : measured;
    }
    return status;
}

static int measure_and_deliver(struct measuring *m, const bool wanted[PARTS],
                               const struct dpb_arguments *arguments)
{
    dpb_stop_on_signals();
    dpb_status status = measure_parts(m, wanted);
    const char *error = error_of(m, status);
    json_object_set_new(m->document, "status", json_string(dpb_result_status(status)));
    json_object_set_new(m->document, "error", error ? dpb_json_string(error) : json_null());
    json_object_set_new(m->document, "warnings", dpb_warnings_collect(NULL));
    json_object_set_new(m->document, "machine", dpb_machine_describe());
    dpb_links_series(m->document);
    return dpb_exit_code_first(
        dpb_stop_exit_code(status),
        dpb_document_deliver(m->document, arguments, "", "links", dpb_links_report_print));
}

static dpb_status parse_window(const struct dpb_command *self, const char *text,
                               struct dpb_links_limits *limits)
{
    uint64_t ns = 0;
    if (!text)
        return dpb_usage_error(self, "--window needs a time");
    if (dpb_parse_quantity(text, dpb_time_units, NULL, &ns) != DPB_PARSED || ns < min_window_ns ||
        ns > max_window_ns)
        return dpb_usage_error(self, "--window is a time from 10us to 10s, not '%s'", text);
    limits->window_ns = (int64_t)ns;
    return DPB_OK;
}

static dpb_status parse_max(const struct dpb_command *self, const char *text,
                            struct dpb_links_limits *limits)
{
    uint64_t bytes = 0;
    if (!text)
        return dpb_usage_error(self, "--max needs a size");
    if (dpb_parse_quantity(text, dpb_size_units, NULL, &bytes) != DPB_PARSED ||
        bytes < dpb_links_size(0) || bytes > dpb_links_size(DPB_LINKS_SIZES - 1))
        return dpb_usage_error(self, "--max is a size from 1KiB to 256MiB, not '%s'", text);
    while (limits->max_bytes > bytes)
        limits->max_bytes /= 4;
    return DPB_OK;
}

/* The word after an option; NULL: none, or an empty one. */
static const char *value_of(int argc, char **argv, int *i)
{
    return *i + 1 < argc && argv[*i + 1][0] != '\0' ? argv[++*i] : NULL;
}

static dpb_status take_word(const struct dpb_command *self, const char *word, bool wanted[PARTS])
{
    for (int part = 0; part < PARTS; part++) {
        if (strcmp(word, part_names[part]) == 0) {
            wanted[part] = true;
            return DPB_OK;
        }
    }
    if (strcmp(word, "network") == 0)
        return dpb_usage_error(self, "'network' is measured by itself, and is the first word");
    const char *near = dpb_did_you_mean(word, part_names);
    return dpb_usage_error(self, "'%s' is none of topology, memory, cores, loopback, devices%s%s%s",
                           word, near ? "; did you mean '" : "", near ? near : "",
                           near ? "'?" : "");
}

/* [PART...] [--window TIME] [--max SIZE] [--json] [--output FILE] */
static dpb_status parse(const struct dpb_command *self, int argc, char **argv, bool wanted[PARTS],
                        struct dpb_links_limits *limits, struct dpb_arguments *arguments)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--window") == 0) {
            DPB_TRY(parse_window(self, value_of(argc, argv, &i), limits));
        } else if (strcmp(word, "--max") == 0) {
            DPB_TRY(parse_max(self, value_of(argc, argv, &i), limits));
        } else if (word[0] == '-') {
            DPB_TRY(dpb_arguments_take_form(self, DPB_ACCEPTS_SERIES, argc, argv, &i, arguments));
        } else {
            DPB_TRY(take_word(self, word, wanted));
            any = true;
        }
    }
    for (int part = 0; part < PARTS; part++)
        wanted[part] |= !any;
    return DPB_OK;
}

static bool stopped(void)
{
    return dpb_stop_signal != 0;
}

static int measure(const struct dpb_links_limits *limits, const bool wanted[PARTS],
                   const struct dpb_arguments *arguments)
{
    struct measuring *m = calloc(1, sizeof *m);
    if (m)
        m->document = json_pack("{s:s}", "schema", "dpbench.links/1");
    if (!m || !m->document) {
        free(m);
        return dpb_status_exit_code(dpb_fail(DPB_NO_MEMORY, "out of memory"));
    }
    m->limits = *limits;
    limit_sizes(&m->limits);
    int code = measure_and_deliver(m, wanted, arguments);
    dpb_topology_close(m->topology);
    json_decref(m->document);
    free(m);
    return code;
}

static int command_links(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_arguments arguments = {0};
    if (argc > 1 && strcmp(argv[1], "network") == 0)
        return dpb_links_network(self, argc - 1, argv + 1);
    bool wanted[PARTS] = {false};
    struct dpb_links_limits limits = {.window_ns = 10000000,
                                      .max_bytes = dpb_links_size(DPB_LINKS_SIZES - 1),
                                      .stopped = stopped};
    dpb_status status = parse(self, argc, argv, wanted, &limits, &arguments);
    DPB_THEN(status, dpb_result_probe(arguments.output, ""));
    const int code =
        status == DPB_OK ? measure(&limits, wanted, &arguments) : dpb_status_exit_code(status);
    dpb_arguments_release(&arguments);
    return code;
}

int main(int argc, char **argv)
{
    static const struct dpb_program_command commands[] = {{"links", command_links}, {0}};
    const struct dpb_program program = {.commands = commands, .network_rank = dpb_network_test_run};
    return dpb_program_main(&program, argc, argv);
}
