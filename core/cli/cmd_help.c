/* cmd_help.c - `dpbench help`: prints the tables of commands, sections and plugins. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "cli/sweep_options.h"
#include "cli/cli.h"
#include "plan/contract.h"
#include "plan/estimate.h"
#include "plugin/plugins.h"

static const struct dpb_plugin *find_device(const struct dpb_plugin_row *rows, size_t n_rows,
                                            const char *name)
{
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].kind == DPB_PLUGIN_DEVICE && rows[i].plugin &&
            (rows[i].plugin->capabilities & DPB_DEVICE_FP32) &&
            !(rows[i].plugin->capabilities & DPB_DEVICE_EMULATED) &&
            (!name || strcmp(rows[i].plugin->name, name) == 0))
            return rows[i].plugin;
    return NULL;
}

static dpb_status create(const char *model, const char *device, struct dpb_experiment **experiment)
{
    struct dpb_config *config = dpb_config_create();
    if (!config)
        return DPB_NO_MEMORY;
    dpb_status status = dpb_config_set(config, "model", "name", model, "help");
    DPB_THEN(status, dpb_config_set(config, "device", "name", device, "help"));
    DPB_THEN(status, dpb_config_set(config, "run", "steps", "1", "help"));
    DPB_THEN(status, dpb_experiment_create(config, experiment));
    dpb_config_destroy(config);
    return status;
}

static void print_model(const char *name, const char *summary, const char *device)
{
    const double mib = 1024.0 * 1024.0;
    struct dpb_experiment *experiment = NULL;
    dpb_status status = create(name, device, &experiment);
    /* Opens the data as the rank after the workers does: for its description, not its samples. */
    DPB_THEN(status, dpb_experiment_build(experiment, experiment->n_workers));
    if (status == DPB_USAGE) {
        printf("  %-16s by its options: %s\n", name, summary);
    } else if (status != DPB_OK) {
        printf("  %-16s not usable: %s\n", name, dpb_first_error(NULL));
    } else {
        const struct dpb_graph *graph = experiment->graph;
        struct dpb_shape shape = experiment->data_info.format.shape;
        char input[40];
        snprintf(input, sizeof input, "%ux%ux%u", shape.c, shape.h, shape.w);
        printf("  %-16s %-10s %11llu %8.3f %6u %9.1f  %s\n", name, input,
               (unsigned long long)graph->n_parameters, (double)graph->macs / 1e9,
               experiment->batch, (double)dpb_experiment_memory(experiment, 0) / mib, summary);
    }
    dpb_first_error_clear();
    dpb_experiment_destroy(experiment);
}

/* A table of the model plugins among `rows`, from their graphs: input, size, and memory on the
 * default device, or on the first that can be loaded. Each row comes from an experiment of the
 * model with defaults, so its memory is that of `dpbench check`. */
static void print_models(const struct dpb_plugin_row *rows, size_t n_rows)
{
    const struct dpb_plugin *device =
        find_device(rows, n_rows, dpb_options_find(dpb_settings_rows("device"), "name")->def);
    if (!device)
        device = find_device(rows, n_rows, NULL);
    printf("  %-16s %-10s %11s %8s %6s %9s\n", "name", "input", "parameters", "GMAC", "batch",
           "MiB");
    /* A model's error stands in its row. */
    const struct dpb_log_hooks silent = {.silent = true};
    dpb_log_set_hooks(&silent);
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].kind != DPB_PLUGIN_MODEL)
            continue;
        if (!rows[i].plugin)
            printf("  %s: not usable: %s\n", rows[i].path, rows[i].reason);
        else if (!device)
            printf("  %-16s no device plugin can be loaded: `dpbench plugins` says why\n",
                   rows[i].plugin->name);
        else
            print_model(rows[i].plugin->name, rows[i].plugin->summary, device->name);
    }
    dpb_log_set_hooks(NULL);
    if (device)
        printf("input: channels x height x width; GMAC: 10^9 multiply-accumulates of a sample's "
               "forward pass;\n"
               "batch: the default of run.batch; MiB: memory of one worker that trains with that "
               "batch in fp32\non device '%s' (an estimate); classes and options: the defaults\n",
               device->name);
}

/* ---- commands, sections and plugins ---------------------------------------------------------- */

/* The question's state. */
struct help {
    struct dpb_plugin_row *plugins; /* @owned: those that were listed last */
    size_t n_plugins;
    bool answered;
};

/* As dpb_plugin_list. */
static dpb_status list_plugins(struct help *help, uint32_t kinds, const char *name)
{
    free(help->plugins);
    help->plugins = NULL;
    help->n_plugins = 0;
    return dpb_plugin_list(&dpb_host, kinds, name, &help->plugins, &help->n_plugins);
}

/* Core's sections, then those of studies; NULL behind the last. */
static const struct dpb_settings_section *section_at(size_t i)
{
    const size_t n = dpb_settings_n_sections;
    return i < n ? &dpb_settings_sections[i] : i < n + DPB_STUDIES ? &dpb_studies[i - n] : NULL;
}

static const char *const kind_lists[DPB_PLUGIN_KINDS] = {"models", "data", "devices", "comm",
                                                         "codecs"};

static void title(struct help *help, const char *what, const char *name, const char *summary)
{
    printf("%s%s %s: %s\n", help->answered ? "\n" : "", what, name, summary);
    help->answered = true;
}

static void print_plugins(const struct help *help)
{
    for (size_t i = 0; i < help->n_plugins; i++) {
        const struct dpb_plugin_row *row = &help->plugins[i];
        if (row->plugin)
            printf("  %-18s %s\n", row->plugin->name, row->plugin->summary);
        else
            printf("  %s: not usable: %s\n", row->path, row->reason);
    }
}

static dpb_status help_overview(struct help *help)
{
    DPB_TRY(list_plugins(help, DPB_PLUGIN_ALL_KINDS, NULL));
    printf("dpbench %s: which way of updating the variables of data-parallel training is fastest, "
           "and why\n\n",
           DPB_VERSION);
    for (const struct dpb_command *command = dpb_commands; command->name; command++)
        printf("  %s\n      %s\n", command->usage, command->summary);
    dpb_programs_print(stdout);
    printf("  dpbench --version\n\nsections of FILE.ini (`dpbench help SECTION`):\n");
    for (size_t i = 0; section_at(i); i++)
        printf("  %-12s %s\n", section_at(i)->name, section_at(i)->summary);
    printf("\nplugins (`dpbench help PLUGIN`):\n");
    for (size_t kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        printf("  %-12s", kind_lists[kind]);
        for (size_t i = 0; i < help->n_plugins; i++)
            if (help->plugins[i].kind == kind && help->plugins[i].plugin)
                printf(" %s", help->plugins[i].plugin->name);
        putchar('\n');
    }
    return DPB_OK;
}

/* Summaries have the arguments without a row. */
static void print_arguments(const char *usage)
{
    static const struct {
        const char *argument, *meaning;
    } rows[] = {
        {"-c FILE.ini | NAME", "the experiment: a file, whose sections `dpbench help` lists; or a "
                               "name of `dpbench list`"},
        {"PROFILE", "of an accelerator: a file of `dpbench profile`, or the name of one that came "
                    "with dpbench"},
        {"RESULT.json", "a file that a run or a sweep left, or the directory of a sweep's runs"},
        {"A.json B.json", "two documents of one command: runs, sweeps or directories of sweeps' "
                          "runs, comm, data, links"},
        {"--markdown", "the table as Markdown"},
        {"--csv", "lines for a program: of rows, of runs, of steps, or of evaluations"},
        {"--html", "a page with figures in FILE, which needs nothing beside it"},
        {"--figure NAME.svg", "the figure NAME of that page, as speedup.svg; needs node"},
        {"--prometheus", "metrics of all rows in Prometheus' text format, for node_exporter's "
                         "textfile collector"},
        {"--each", "one result after the other, not one table"},
        {"--pool FACT", "a fact of machines that separates no setups, as in machine.host"},
        {"--link", "RATE,LATENCY of a machine's connection, as in 10Gbit,50us; one or several"},
        {"--links", "instead: a document of `dpbench links network`"},
        {"--comm", "instead: a document of `dpbench comm`, to which a link is fitted"},
        {"--workers", "numbers of workers; default 2,4,... to 1024"},
        {"--strategies", "default: all that apply, but ring_verbs, those with /shard, and models"},
        {"--buckets", "values of comm.bucket; default: the run's"},
        {"--batches", "values of run.batch; default: the run's"},
        {"--per-machine", "so many workers share a machine and its link; default 1"},
        {"--inside", "how a worker copies within its machine; or a document of `dpbench comm` with "
                     "shm"},
        {"--servers", "processes of ps_cpu, each on a machine of its own; default: shards in the "
                      "workers"},
        {"--host", "a worker's thread sends at RATE, and takes TIME for each message; default: no "
                   "time"},
        {"--delay DELAY", "of each worker's step, as run.delay"},
        {"--codec NAME", "messages by this codec, at the speed that `dpbench comm` measured"},
        {"--update RATE", "with a profile: elements that a worker's optimizer updates in a second"},
        {"--window", "how long work is repeated for one number, 10us to 10s; default 10ms"},
        {"--max", "largest size of a message, 1KiB to 256MiB"},
        {"--rate", "of the link of each host, each way, as in 10Gbit"},
        {"--latency", "from a host to another, as in 50us; default: the kernel's own"},
        {"--uplink", "K:1 halves the hosts: the cable between the halves takes 1/K of what the "
                     "hosts of a half send together"},
        {"--slow", "HOST=RATE, with hosts from 1: that host has another link"},
        {"--dilation", "links are D times slower, and COMMAND gets DPBENCH_DILATION=D"},
        {"--rate RATE", "samples/s, as in 7000/s; a step is --batch of them"},
        {"--flops N", "FLOP/s of the data sheet, as in 989e12; beside --rate they divide its step"},
        {"--bandwidth N", "its bytes/s of memory, as in 3.35e12"},
        {"--share S", "how much of both is reached, above 0 and up to 1"},
        {"--torch TRACE.json", "of PyTorch's profiler, with the ranges of docs/emulating.md"},
        {"--chakra TRACE.json", "a Chakra execution trace as JSON"},
        {"--model NAME", "a model of dpbench; of a trace or --tensors any name"},
        {"--tensors FILE", "of a model that dpbench lacks: lines NAME ELEMENTS MACS"},
        {"--batch N", "samples of a step of one worker"},
        {"--accelerator NAME", "its name; of a result, by default, what it names"},
        {"--precision NAME", "fp64, fp32, tf32, bf16 or fp16; default fp32"},
        {"--kind KIND", "estimated (default); published with --rate, measured with --chakra"},
        {"--source TEXT", "where the times are from"},
        {"--spread S", "standard deviation of a step over its mean; default 0.01"},
        {"model.KEY=VALUE", "an option of the model, or data.KEY=VALUE"},
        {"-- COMMAND ...", "the command and its arguments"},
        {"--base", "the program of the other build; its plugins are those beside it"},
        {"--repeats", "how often each build runs; default 10. With --threshold at most so often, "
                      "default 30: pairs end when they decide, at 10, 14, .. 30 of them"},
        {"--budget", "no pair starts that would end later, as in 10min"},
        {"--undecided", "exit code 0 (pass) or 4 (fail) in place of 6 if it is undecided"},
        {"--sample", "print N bytes, drawn one by one by run.seed, and a line break"},
        {"--prompt", "the text before them, which is not printed; default: a line break"},
        {"--temperature", "below 1 likely bytes are likelier, 0: the likeliest; default 1"},
        {"--threshold", "exit code 4 if B (`gate`: this build) is shown to be slower by more than "
                        "PERCENT, or a cell has no rate; 0 if it is shown not to be; else 6"},
        {"--accuracy POINTS", "likewise, if B's accuracy is lower by more than POINTS"},
        {"--loss PERCENT", "likewise, if B's loss is higher by more"},
        {"--bytes PERCENT", "likewise, if B sends more bytes a step"},
        {"--memory PERCENT", "likewise, if a rank of B has more memory"},
        {"--energy PERCENT", "likewise, if B takes more energy a sample"},
        {"--time PERCENT", "likewise, if B takes longer to the target"},
        {"--samples PERCENT", "likewise, if B takes more samples to the target"},
        {"--require-same",
         "PARTS that must not differ: config,inputs,machine,versions,environment"},
        {"KIND NAME",
         "KIND is model, data, comm or codec; NAME is the plugin's and the directory's"},
        {"KIND_NAME.so", "the plugin's file; KIND is model, data, device, comm or codec"},
        {"SECTION.KEY=VALUE",
         "a setting, in place of the file's or of the default; without VALUE the default"},
        {"--resume", "run only the missing runs of an interrupted or failed sweep"},
        {"--trust", "write where RESULT.json says; else beside it or below the working directory"},
        {"--jsonl", "JSON lines on standard output, one for each row and repeat"},
        {"--least", "each row with these keys must have FIELD at least NUMBER, as in "
                    "bus_gb_per_s@size=64MiB=10GB/s: exit code 4 if its 95 % interval shows less, "
                    "6 if undecided"},
        {"--most", "at most NUMBER, likewise"},
        {"--json", "one JSON document on standard output instead of a table"},
        {"--output FILE",
         "write the document to FILE; without it only runs and sweeps write a file, a new one in "
         "run.results"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = strstr(usage, rows[i].argument);
        if (at && !isalpha((unsigned char)at[strlen(rows[i].argument)]))
            printf("      %-19s %s\n", rows[i].argument, rows[i].meaning);
    }
}

static void help_command(struct help *help, const char *word)
{
    char users[PATH_MAX];
    const struct dpb_command *command = dpb_command_find(word);
    if (command) {
        title(help, "command", word, command->summary);
        printf("  %s\n", command->usage);
        print_arguments(command->usage);
    } else if (dpb_program_is_users(word) && dpb_program_find(word, users)) {
        title(help, "command", word, "a program of yours");
        printf("  %s\n", users);
    }
}

static void help_section(struct help *help, const char *word)
{
    const struct dpb_settings_section *section;
    for (size_t i = 0; (section = section_at(i)); i++) {
        if (strcmp(section->name, word) != 0)
            continue;
        title(help, "section", word, section->summary);
        dpb_options_print(word, section->rows, stdout);
    }
}

static dpb_status help_kind(struct help *help, const char *word)
{
    for (size_t kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        const char *name = dpb_plugin_kind_name[kind];
        if (strcmp(kind_lists[kind], word) != 0 && strcmp(name, word) != 0)
            continue;
        const uint32_t device = kind == DPB_PLUGIN_MODEL ? 1u << DPB_PLUGIN_DEVICE : 0;
        DPB_TRY(list_plugins(help, 1u << kind | device, NULL));
        printf("%s%s.%s may be (their options: `dpbench help NAME`):\n", help->answered ? "\n" : "",
               dpb_plugin_place[kind].section, dpb_plugin_place[kind].key);
        if (kind == DPB_PLUGIN_MODEL)
            print_models(help->plugins, help->n_plugins);
        else
            print_plugins(help);
        help->answered = true;
    }
    return DPB_OK;
}

/* What the contract lets a step wait for, in words. */
static void contract_waits(const struct dpb_contract *contract, char text[160])
{
    enum { BYTES = 160 };
    const unsigned k = contract->parameter;
    switch (contract->consistency) {
    case DPB_SYNCHRONOUS:
        snprintf(text, BYTES, "in every step for the gradients of all workers of that step");
        break;
    case DPB_LATE:
        snprintf(text, BYTES, "in every step for the exchange of %u step%s before", k,
                 k == 1 ? "" : "s");
        break;
    case DPB_PERIODIC:
        snprintf(text, BYTES, "in one step of %u for all workers, in the others for none", k);
        break;
    case DPB_STALE:
        snprintf(text, BYTES, "for a worker that is more than %u step%s behind", k,
                 k == 1 ? "" : "s");
        break;
    case DPB_PARTIAL:
        snprintf(text, BYTES, "in every step for the first %u gradients of it", k);
        break;
    case DPB_BATCHES:
        snprintf(text, BYTES, "for the update that its gradient goes into, of the first %u", k);
        break;
    case DPB_ALONE:
        snprintf(text, BYTES, "for no other worker: nothing is exchanged");
        break;
    default: /* the lead alone says how long */
        if (contract->lead == UINT32_MAX)
            snprintf(text, BYTES, "for no other worker; bytes may be on the way");
        else if (contract->lead == 0)
            snprintf(text, BYTES, "in every step for all workers to begin it");
        else
            snprintf(text, BYTES, "for workers that are more than %u step%s behind", contract->lead,
                     contract->lead == 1 ? "" : "s");
    }
}

/* By an experiment with the strategy's defaults. */
static dpb_status ask_contract(const char *comm, struct dpb_contract *contract)
{
    static const char *const settings[][3] = {
        {"model", "name", "tiny"}, {"run", "workers", "4"}, {"run", "steps", "1"}};
    struct dpb_config *config = dpb_config_create();
    struct dpb_experiment *experiment = NULL;
    dpb_status status = dpb_allocated(config);
    DPB_THEN(status, dpb_config_set(config, "comm", "name", comm, "help"));
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        DPB_THEN(status,
                 dpb_config_set(config, settings[i][0], settings[i][1], settings[i][2], "help"));
    DPB_THEN(status, dpb_experiment_create(config, &experiment));
    DPB_THEN(status, dpb_contract_ask(experiment, contract));
    dpb_experiment_destroy(experiment);
    dpb_config_destroy(config);
    return status;
}

/* A strategy without the hook `contract` has the default whatever its options are. */
static void print_waits(const struct dpb_plugin *comm)
{
    enum { WORKERS = 4 };
    struct dpb_contract contract =
        dpb_contract_default(WORKERS, comm->capabilities & DPB_COMM_ALONE);
    const struct dpb_log_hooks silent = {.silent = true};
    char text[160], label[DPB_LABEL_BYTES];
    dpb_log_set_hooks(&silent);
    const dpb_status status = ((const struct dpb_comm_ops *)comm->ops)->contract
                                  ? ask_contract(comm->name, &contract)
                                  : DPB_OK;
    dpb_log_set_hooks(NULL);
    contract_waits(&contract, text);
    dpb_contract_label(&contract, WORKERS, label);
    if (status == DPB_OK)
        printf("  a worker waits %s (%s; 4 workers, the defaults)\n", text, label);
    else
        printf("  what a worker waits for is not known here: %s\n", dpb_first_error(NULL));
    dpb_first_error_clear();
}

/* Describes a plugin among the listed ones. */
static void describe_plugin(struct help *help, const char *word)
{
    for (size_t i = 0; i < help->n_plugins; i++) {
        const struct dpb_plugin *plugin = help->plugins[i].plugin;
        if (!plugin || strcmp(plugin->name, word) != 0)
            continue;
        const char *kind = dpb_plugin_kind_name[help->plugins[i].kind];
        title(help, kind, word, plugin->summary);
        printf("  version %s, %s\n", plugin->version, help->plugins[i].path);
        if (help->plugins[i].kind == DPB_PLUGIN_COMM)
            print_waits(plugin);
        if (plugin->options && plugin->options[0].name)
            dpb_options_print(dpb_plugin_place[help->plugins[i].kind].section, plugin->options,
                              stdout);
        else
            printf("  no options of its own\n");
    }
}

/* Opens all files only if nothing else has this name: a file may have several plugins. */
static dpb_status help_plugin(struct help *help, const char *word)
{
    DPB_TRY(list_plugins(help, DPB_PLUGIN_ALL_KINDS, word));
    describe_plugin(help, word);
    if (!help->answered && dpb_plugin_name_valid(word)) {
        DPB_TRY(list_plugins(help, DPB_PLUGIN_ALL_KINDS, NULL));
        describe_plugin(help, word);
    }
    return DPB_OK;
}

static void help_row(struct help *help, const char *what, const char *name, const char *section,
                     const struct dpb_option *rows, const char *key)
{
    for (; rows && rows->name; rows++) {
        if (strcmp(rows->name, key) != 0)
            continue;
        const struct dpb_option one[2] = {*rows, {0}};
        printf("%s%s %s:\n", help->answered ? "\n" : "", what, name);
        dpb_options_print(section, one, stdout);
        help->answered = true;
    }
}

/* SECTION.KEY: core's row of this name, and every plugin's. */
static dpb_status help_key(struct help *help, const char *word)
{
    const char *dot = strchr(word, '.');
    char section[64];
    if (!dot || (size_t)(dot - word) >= sizeof section)
        return DPB_OK;
    snprintf(section, sizeof section, "%.*s", (int)(dot - word), word);
    for (size_t i = 0; section_at(i); i++)
        if (strcmp(section_at(i)->name, section) == 0)
            help_row(help, "section", section, section, section_at(i)->rows, dot + 1);
    DPB_TRY(list_plugins(help, dpb_plugin_kinds_in(section), NULL));
    for (size_t i = 0; i < help->n_plugins; i++) {
        const struct dpb_plugin *plugin = help->plugins[i].plugin;
        if (plugin)
            help_row(help, section, plugin->name, section, plugin->options, dot + 1);
    }
    return DPB_OK;
}

/* docs/glossary.md (tools/glossary). */
static const struct {
    const char *name, *sense;
} terms[] = {
#define TERM(name, sense) {name, sense},
#include "glossary.h"
};
enum { TERMS = sizeof terms / sizeof *terms };

/* A term, or several of it: `workers`. */
static void help_term(struct help *help, const char *word)
{
    for (size_t i = 0; i < TERMS; i++) {
        const size_t n = strlen(terms[i].name);
        if (strncmp(terms[i].name, word, n) == 0 && (!word[n] || strcmp(word + n, "s") == 0))
            title(help, "term", terms[i].name, terms[i].sense);
    }
}

/* Nothing was found: suggests the nearest word. */
static dpb_status help_unknown(const struct dpb_command *self, struct help *help, const char *word)
{
    const struct dpb_settings_section *section;
    struct dpb_nearest near = {.word = word};
    char key[128], kept[128];
    DPB_TRY(list_plugins(help, DPB_PLUGIN_ALL_KINDS, NULL));
    for (size_t i = 0; (section = section_at(i)); i++) {
        dpb_nearest_offer(&near, section->name);
        for (const struct dpb_option *row = section->rows; row->name; row++) {
            snprintf(key, sizeof key, "%s.%s", section->name, row->name);
            dpb_nearest_offer(&near, key);
            if (near.found == key)
                near.found = strcpy(kept, key);
        }
    }
    for (const struct dpb_command *command = dpb_commands; command->name; command++)
        dpb_nearest_offer(&near, command->name);
    for (size_t i = 0; i < DPB_PLUGIN_KINDS; i++)
        dpb_nearest_offer(&near, kind_lists[i]);
    for (size_t i = 0; i < help->n_plugins; i++)
        if (help->plugins[i].plugin)
            dpb_nearest_offer(&near, help->plugins[i].plugin->name);
    for (size_t i = 0; i < TERMS; i++)
        dpb_nearest_offer(&near, terms[i].name);
    return dpb_usage_error(self, "no command, section, option, plugin or term is called '%s'%s%s%s",
                           word, near.found ? "; did you mean '" : "", near.found ? near.found : "",
                           near.found ? "'?" : "");
}

/* For tools/pages, and to be searched. */
static dpb_status help_all(struct help *help)
{
    DPB_TRY(list_plugins(help, DPB_PLUGIN_ALL_KINDS, NULL));
    for (const struct dpb_command *command = dpb_commands; command->name; command++)
        help_command(help, command->name);
    for (size_t i = 0; section_at(i); i++)
        help_section(help, section_at(i)->name);
    for (size_t i = 0; i < help->n_plugins; i++)
        if (help->plugins[i].plugin)
            describe_plugin(help, help->plugins[i].plugin->name);
    return DPB_OK;
}

static dpb_status help_word(const struct dpb_command *self, struct help *help, const char *word)
{
    help_command(help, word);
    help_section(help, word);
    DPB_TRY(help_kind(help, word));
    DPB_TRY(help_plugin(help, word));
    DPB_TRY(help_key(help, word));
    help_term(help, word);
    for (size_t i = 0; section_at(i); i++)
        help_row(help, "section", section_at(i)->name, section_at(i)->name, section_at(i)->rows,
                 word);
    return help->answered ? DPB_OK : help_unknown(self, help, word);
}

int dpb_command_help(const struct dpb_command *self, int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "matrix") == 0)
        return dpb_program_become("matrix");
    if (argc > 2) {
        dpb_usage_error(self, "one word at a time");
        return dpb_status_exit_code(DPB_USAGE);
    }
    struct help help = {0};
    dpb_status status = argc == 1                     ? help_overview(&help)
                        : strcmp(argv[1], "all") == 0 ? help_all(&help)
                                                      : help_word(self, &help, argv[1]);
    free(help.plugins);
    return dpb_status_exit_code(status);
}
