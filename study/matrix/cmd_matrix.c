/*
 * cmd_matrix.c - `dpbench help matrix`: whether a strategy works with a feature, and with each pair
 * of features. Each combination is an experiment of a small model that core makes or refuses here,
 * so the answer is core's own. A refusal is shortened to a note by a part of its message. A refusal
 * without a note, as of a user's strategy, is printed as it is.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"
#include "plan/contract.h"
#include "plan/estimate.h"

/* ---- features ------------------------------------------------------------------------------ */

enum { WORKERS = 2, LEARNERS = 2, HEAD = 4, SETTINGS = 1024 };

/* In the order of columns. Two features that give one key different values have no combination. */
static const struct feature {
    char name[HEAD + 1];
    const char *settings;
    bool on_gpu, on_machines; /* with the settings that `write_settings` adds for them */
    const char *words;        /* NULL: the settings */
} features[] = {
    {.name = "mach", .settings = "", .on_machines = true, .words = "comm.hosts: two machines"},
    {.name = "gpu", .settings = "", .on_gpu = true, .words = "device.name: a GPU"},
    {.name = "mom", .settings = "optimizer.name=sgd optimizer.momentum=0.9"},
    {.name = "adag", .settings = "optimizer.name=adagrad"},
    {.name = "adam", .settings = "optimizer.name=adamw"},
    {.name = "rms", .settings = "optimizer.name=rmsprop"},
    {.name = "lars", .settings = "optimizer.name=lars"},
    {.name = "lamb", .settings = "optimizer.name=lamb"},
    {.name = "clip", .settings = "optimizer.clip_norm=1"},
    {.name = "topk", .settings = "comm.codec=topk"},
    {.name = "psgd", .settings = "comm.codec=powersgd"},
    {.name = "shrd", .settings = "comm.shard=optimizer"},
    {.name = "slot", .settings = "comm.shard=gradients"},
    {.name = "parm", .settings = "comm.shard=parameters"},
    {.name = "late", .settings = "comm.late=1"},
    {.name = "accu", .settings = "run.accumulate=2"},
    {.name = "bf16", .settings = "comm.gradient=bf16"},
    {.name = "fp16",
     .settings = "run.precision=fp16",
     .on_gpu = true,
     .words = "run.precision=fp16, on a GPU"},
    {.name = "lrn", .settings = "run.learners=2"},
    {.name = "surv", .settings = "run.survive=yes"},
    {.name = "save", .settings = "checkpoint.save=saved.safetensors"},
};
enum { FEATURES = sizeof features / sizeof *features };

/* ---- answers ------------------------------------------------------------------------------- */

/* ON_HOST: works, and a GPU's weights and gradients are exchanged in the host's memory. */
enum verdict { NONE, WORKS, ON_HOST, LAW, NOT_BUILT, OTHER, MISSING };

struct answer {
    enum verdict verdict;
    unsigned note; /* with LAW and NOT_BUILT: index in `notes` */
};

/* ---- strategies ---------------------------------------------------------------------------- */

enum kind { ALONE = 1, SUMS = 2, REPLICAS = 4, OWNERS = 8 };

/* A strategy in one of its forms. */
struct row {
    char name[64], form[64]; /* form: its settings */
    const struct dpb_plugin *plugin;
    bool on_gpu;                          /* without a GPU it does not work */
    unsigned kinds;                       /* without features: enum kind */
    bool is_missing;                      /* this build or this machine lacks something for it */
    char why[256];                        /* with is_missing: core's message */
    struct answer of[FEATURES][FEATURES]; /* features alone on the diagonal, pairs above it */
};

/* ---- notes --------------------------------------------------------------------------------- */

/* A refusal has the first note that fits: its message has `part`, the strategy is of one of the
 * `kinds` (0: any), and the features have `with` among their settings (NULL: any). A law: the words
 * contradict each other, or another program or the machine excludes them. */
static const struct note {
    const char *part;
    unsigned kinds;
    const char *with;
    bool is_law;
    const char *words;
} notes[] = {
    {"works within one machine", SUMS, NULL, true, "its workers read each other's memory"},
    {"in the memory of one machine", 0, NULL, false, "its differences are in shared memory"},
    {"need each other's gradients", SUMS, NULL, true,
     "each step needs the gradients of all workers"},
    {"need each other's gradients", 0, NULL, false, "only servers outlive a worker"},
    {"mpirun and srun end a job", 0, NULL, true, "mpirun and srun end a job when a process dies"},
    {"synchronous strategy one step late", 0, NULL, true, "late needs a synchronous mean"},
    {"carries no codec, ", ALONE, NULL, true, "nothing is exchanged"},
    {"carries no codec, ", 0, NULL, false, "it carries no codec"},
    {"carries no codec of two rounds", 0, NULL, false, "it carries no codec of two rounds"},
    {"in fp32 without a loss scale", 0, "comm.gradient=", true,
     "comm.gradient and a codec both say what is sent"},
    {"in fp32 without a loss scale", 0, NULL, false, "codecs know no loss scale"},
    {"no contract is both late and lossy", 0, NULL, false, "no contract is both late and lossy"},
    {"exchange none", 0, NULL, false, "shards across machines exchange no sums of squares"},
    {"has parts of them", 0, NULL, false, "owners of shards exchange no sums of squares"},
    {"unknown option 'shard'", ALONE, NULL, true, "nothing is exchanged"},
    {"unknown option 'shard'", OWNERS, "comm.shard=optimizer", true,
     "the optimizer's state is in shards already"},
    {"unknown option 'shard'", REPLICAS, NULL, true, "replicas differ: each needs its own state"},
    {"unknown option 'shard'", 0, "comm.shard=parameters", false, "its workers keep all weights"},
    {"unknown option 'shard'", 0, NULL, false, "it keeps whole gradients"},
    {"'parameters' is not one of none, optimizer", 0, NULL, false, "its workers keep all weights"},
    {"would fetch all weights twice", 0, NULL, false, "each micro-batch would fetch all weights"},
    {"take the sums of all buckets", 0, NULL, false, "norms take the sums of all buckets"},
    {"a second arena of weights", 0, NULL, false, "a late exchange has a second arena of weights"},
    {"'gradients' is not one of none, optimizer", 0, NULL, false, "it keeps whole gradients"},
    {"round rings of the host's memory", 0, NULL, false, "its shards go round the host's rings"},
    {"updates all of a bucket", 0, NULL, false, "with a codec each worker updates all"},
    {"no sums over micro-batches", 0, NULL, false, "its owners keep no sums over micro-batches"},
    {"a late exchange keeps", 0, NULL, true, "late keeps whole gradients: slots save nothing"},
    {"until they are known to be finite", 0, NULL, false, "fp16 needs whole gradients"},
    {"node by node", 0, NULL, false, "the device does not write gradients node by node"},
    {"steps whose gradients overflow", 0, NULL, true,
     "a step left out makes its gradients too late"},
    {"lets workers be steps apart", 0, NULL, true, "fp16: workers agree on overflow in each step"},
    {"how many updates of optimizer", 0, NULL, false,
     "a checkpoint does not count servers' updates"},
    {"takes each device for one worker", 0, NULL, true, "it takes each GPU for one worker"},
};
enum { NOTES = sizeof notes / sizeof *notes };

/* ---- combinations -------------------------------------------------------------------------- */

enum form { TABLES, MARKDOWN, CSV };

struct matrix {
    struct row *rows; /* @owned */
    size_t n_rows;
    const char *gpu; /* a device with memory of its own; NULL: this build has none */
    enum form form;
    bool noted[NOTES];        /* those that were printed */
    char other[DPB_LOG_TEXT]; /* the first refusal without a note; "": there is none */
};

static bool has(const struct feature *a, const struct feature *b, const char *word)
{
    return (a && strstr(a->settings, word)) || (b && strstr(b->settings, word));
}

static bool takes_gpu(const struct row *row, const struct feature *a, const struct feature *b)
{
    return row->on_gpu || (a && a->on_gpu) || (b && b->on_gpu);
}

/* The settings of an experiment, with blanks between them. */
static void write_settings(const struct matrix *matrix, const struct row *row,
                           const struct feature *a, const struct feature *b, char to[SETTINGS])
{
    struct dpb_text text = dpb_text_in(to, SETTINGS);
    const char *const given[] = {row->form, a ? a->settings : "", b ? b->settings : ""};
    const char *gpu = matrix->gpu ? matrix->gpu : "GPU";
    const unsigned servers = strstr(row->form, "servers=1") != NULL;
    const unsigned half = has(a, b, "learners") ? WORKERS * LEARNERS / 2 : WORKERS / 2;
    dpb_text_add(&text,
                 "model.name=tiny data.name=synthetic data.samples=64 data.test_samples=16 "
                 "run.batch=2 run.steps=3 run.workers=%d device.name=%s device.threads=%d "
                 "comm.name=%s",
                 WORKERS, takes_gpu(row, a, b) ? gpu : "reference", LEARNERS, row->plugin->name);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i][0])
            dpb_text_add(&text, " %s", given[i]);
    if ((a && a->on_machines) || (b && b->on_machines))
        dpb_text_add(&text, " comm.hosts=%u+%u", half, half + servers);
    else if (row->plugin->capabilities & DPB_COMM_LAUNCHER)
        dpb_text_add(&text, " comm.hosts=%u", 2 * half + servers);
}

/* Prints no error: a refusal is an answer. The origin says that mpirun or srun will start the ranks
 * of a strategy that needs them. */
static dpb_status make(const struct matrix *matrix, const struct row *row, const struct feature *a,
                       const struct feature *b, struct dpb_experiment **experiment)
{
    const struct dpb_log_hooks silent = {.silent = true};
    const bool launched = row->plugin->capabilities & DPB_COMM_LAUNCHER;
    struct dpb_config *config = dpb_config_create();
    dpb_status status = dpb_allocated(config);
    char settings[SETTINGS], *rest = settings, *word;
    dpb_log_set_hooks(&silent);
    write_settings(matrix, row, a, b, settings);
    while (status == DPB_OK && (word = strsep(&rest, " ")))
        status = dpb_config_assign(config, word, launched ? DPB_LAUNCH_ORIGIN : "matrix");
    DPB_THEN(status, dpb_experiment_create(config, experiment));
    DPB_THEN(status, dpb_experiment_build(*experiment, (*experiment)->n_workers));
    dpb_log_set_hooks(NULL);
    dpb_config_destroy(config);
    return status;
}

static struct answer shorten(struct matrix *matrix, const struct row *row, const struct feature *a,
                             const struct feature *b, const char *message)
{
    for (unsigned i = 0; i < NOTES; i++)
        if (strstr(message, notes[i].part) && (!notes[i].kinds || notes[i].kinds & row->kinds) &&
            (!notes[i].with || has(a, b, notes[i].with)))
            return (struct answer){notes[i].is_law ? LAW : NOT_BUILT, i};
    if (!matrix->other[0])
        snprintf(matrix->other, sizeof matrix->other, "%s", message);
    return (struct answer){OTHER, 0};
}

/* `b`: NULL, or another feature. */
static struct answer answer(struct matrix *matrix, const struct row *row, const struct feature *a,
                            const struct feature *b)
{
    const bool on_gpu = takes_gpu(row, a, b);
    struct dpb_experiment *experiment = NULL;
    if (row->is_missing || (on_gpu && !matrix->gpu))
        return (struct answer){MISSING, 0};
    struct answer answer = {WORKS, 0};
    if (make(matrix, row, a, b, &experiment) != DPB_OK)
        answer = shorten(matrix, row, a, b, dpb_first_error(NULL));
    else if (on_gpu && !dpb_experiment_arenas_on_device(experiment))
        answer.verdict = ON_HOST;
    dpb_first_error_clear();
    dpb_experiment_destroy(experiment);
    return answer;
}

/* Whether they give a key different values. */
static bool excludes(const struct feature *a, const struct feature *b)
{
    char settings[128], *rest = settings, *word, key[64];
    snprintf(settings, sizeof settings, "%s", a->settings);
    while ((word = strsep(&rest, " "))) {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(word, "=") + 1, word);
        if (strstr(b->settings, key) && !strstr(b->settings, word))
            return true;
    }
    return false;
}

/* A refused pair with a feature that a law excludes is refused by that law. */
static struct answer answer_pair(struct matrix *matrix, const struct row *row, size_t i, size_t k)
{
    const struct answer a = row->of[i][i], b = row->of[k][k];
    if (excludes(&features[i], &features[k]))
        return (struct answer){NONE, 0};
    const struct answer pair = answer(matrix, row, &features[i], &features[k]);
    if (pair.verdict != LAW && pair.verdict != NOT_BUILT)
        return pair;
    return a.verdict == LAW ? a : b.verdict == LAW ? b : pair;
}

static void answer_row(struct matrix *matrix, struct row *row)
{
    for (size_t i = 0; i < FEATURES; i++)
        row->of[i][i] = answer(matrix, row, &features[i], NULL);
    for (size_t i = 0; i < FEATURES; i++)
        for (size_t k = i + 1; k < FEATURES; k++)
            row->of[i][k] = answer_pair(matrix, row, i, k);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static unsigned kinds_of(const struct dpb_experiment *experiment)
{
    struct dpb_contract contract;
    if (dpb_contract_ask(experiment, &contract) != DPB_OK)
        return 0;
    const dpb_consistency kind = contract.consistency;
    const struct dpb_comm_memory memory = dpb_experiment_strategy_memory(experiment, 0);
    const bool owns =
        experiment->n_servers > 0 || memory.state_elements < experiment->graph->n_elements;
    return (kind == DPB_ALONE ? ALONE : 0u) | (kind == DPB_SYNCHRONOUS ? SUMS : 0u) |
           (kind == DPB_PERIODIC || kind == DPB_AVERAGING ? REPLICAS : 0u) | (owns ? OWNERS : 0u);
}

/* On the host, else on a GPU. */
static void settle_row(const struct matrix *matrix, struct row *row)
{
    row->is_missing = true;
    for (int on_gpu = row->on_gpu; row->is_missing && on_gpu <= (matrix->gpu != NULL); on_gpu++) {
        struct dpb_experiment *experiment = NULL;
        row->on_gpu = on_gpu;
        row->is_missing = make(matrix, row, NULL, NULL, &experiment) != DPB_OK;
        if (row->is_missing)
            snprintf(row->why, sizeof row->why, "%s", dpb_first_error(NULL));
        else
            row->kinds = kinds_of(experiment);
        dpb_experiment_destroy(experiment);
        dpb_first_error_clear();
    }
}

/* A strategy in a form, with its setting. `wanted`: a strategy, or a form of one; NULL: all. */
static dpb_status add_row(struct matrix *matrix, const char *wanted,
                          const struct dpb_plugin *plugin, const char *form, const char *settings)
{
    struct row row = {.plugin = plugin};
    snprintf(row.name, sizeof row.name, "%s%s%s", plugin->name, form[0] ? "/" : "", form);
    snprintf(row.form, sizeof row.form, "%s", settings);
    if (wanted && strcmp(wanted, plugin->name) != 0 && strcmp(wanted, row.name) != 0)
        return DPB_OK;
    struct row *rows = realloc(matrix->rows, (matrix->n_rows + 1) * sizeof *rows);
    DPB_TRY(dpb_allocated(rows));
    settle_row(matrix, &row);
    rows[matrix->n_rows++] = row;
    matrix->rows = rows;
    return DPB_OK;
}

/* Whether the strategy with this setting keeps weights and gradients on GPUs, and works on no
 * other device. */
static bool needs_gpu(const struct matrix *matrix, const struct dpb_plugin *plugin,
                      const char *settings)
{
    struct row row = {.plugin = plugin, .on_gpu = true};
    struct dpb_experiment *experiment = NULL;
    snprintf(row.form, sizeof row.form, "%s", settings);
    const bool needs = make(matrix, &row, NULL, NULL, &experiment) == DPB_OK &&
                       experiment->comm_needs.runtime != NULL;
    dpb_experiment_destroy(experiment);
    dpb_first_error_clear();
    return needs;
}

/* An option's choice is a form if it moves a strategy of the host to GPUs. */
static dpb_status add_choices(struct matrix *matrix, const char *wanted,
                              const struct dpb_plugin *plugin)
{
    char settings[64];
    const struct dpb_option *option = plugin->options;
    if (!matrix->gpu || needs_gpu(matrix, plugin, ""))
        return DPB_OK;
    for (; option && option->name; option++)
        for (size_t i = 0; option->type == DPB_OPT_CHOICE && option->choices[i]; i++) {
            snprintf(settings, sizeof settings, "comm.%s=%s", option->name, option->choices[i]);
            if (needs_gpu(matrix, plugin, settings))
                DPB_TRY(add_row(matrix, wanted, plugin, option->choices[i], settings));
        }
    return DPB_OK;
}

static dpb_status add_rows(struct matrix *matrix, const char *wanted,
                           const struct dpb_plugin *plugin)
{
    const bool served = plugin->capabilities & DPB_COMM_SERVED;
    DPB_TRY(add_row(matrix, wanted, plugin, "", served ? "run.servers=1" : ""));
    if (plugin->capabilities & DPB_COMM_SERVERS && !served)
        DPB_TRY(add_row(matrix, wanted, plugin, "servers", "run.servers=1"));
    return add_choices(matrix, wanted, plugin);
}

static bool is_gpu(const struct dpb_plugin *plugin)
{
    return ((const struct dpb_device_ops *)plugin->ops)->queues != NULL;
}

static dpb_status find_rows(struct matrix *matrix, const char *wanted)
{
    struct dpb_plugin_row *plugins = NULL;
    size_t n = 0;
    DPB_TRY(dpb_plugin_list(&dpb_host, 1u << DPB_PLUGIN_COMM | 1u << DPB_PLUGIN_DEVICE, NULL,
                            &plugins, &n));
    dpb_status status = DPB_OK;
    for (size_t i = 0; i < n && !matrix->gpu; i++)
        if (plugins[i].kind == DPB_PLUGIN_DEVICE && plugins[i].plugin && is_gpu(plugins[i].plugin))
            matrix->gpu = plugins[i].plugin->name;
    for (size_t i = 0; i < n && status == DPB_OK; i++)
        if (plugins[i].kind == DPB_PLUGIN_COMM && plugins[i].plugin)
            status = add_rows(matrix, wanted, plugins[i].plugin);
    free(plugins);
    return status;
}

/* ---- printing ------------------------------------------------------------------------------ */

enum { NAME_WIDTH = 17, TAG = 16 };

static const char *tag_of(struct answer answer, char tag[TAG])
{
    static const char *const words[] = {"", "yes", "host", "L", "n", "no", "?"};
    if (answer.verdict == LAW || answer.verdict == NOT_BUILT)
        snprintf(tag, TAG, "%s%u", words[answer.verdict], answer.note + 1);
    else
        snprintf(tag, TAG, "%s", words[answer.verdict]);
    return tag;
}

/* Of a table: the first word of a line, and one of another column. */
static void print_first(const struct matrix *matrix, int width, const char *word)
{
    if (matrix->form == MARKDOWN)
        printf("| %s |", word);
    else
        printf("%-*s", width, word);
}

static void print_word(const struct matrix *matrix, size_t column, const char *word)
{
    if (matrix->form == MARKDOWN)
        printf(" %s |", word);
    else
        printf(" %-*s", column + 1 < FEATURES ? HEAD : 0, word);
}

static void print_answer(struct matrix *matrix, size_t column, struct answer answer)
{
    char tag[TAG];
    if (answer.verdict == LAW || answer.verdict == NOT_BUILT)
        matrix->noted[answer.note] = true;
    print_word(matrix, column, tag_of(answer, tag));
}

static void print_heads(const struct matrix *matrix, int width, const char *first)
{
    print_first(matrix, width, first);
    for (size_t i = 0; i < FEATURES; i++)
        print_word(matrix, i, features[i].name);
    putchar('\n');
    for (size_t i = 0; matrix->form == MARKDOWN && i <= FEATURES; i++)
        printf(i < FEATURES ? "|---" : "|---|\n");
}

/* Without combinations that are missing. */
struct share {
    unsigned n, works, laws;
};

static void count(const struct row *row, struct share *share)
{
    for (size_t i = 0; i < FEATURES; i++)
        for (size_t k = i; k < FEATURES; k++) {
            const enum verdict verdict = row->of[i][k].verdict;
            share->n += verdict != NONE && verdict != MISSING;
            share->works += verdict == WORKS || verdict == ON_HOST;
            share->laws += verdict == LAW;
        }
}

static void print_share(const struct row *rows, size_t n)
{
    struct share share = {0};
    for (size_t i = 0; i < n; i++)
        count(&rows[i], &share);
    const unsigned others = share.n - share.laws;
    printf("%u of %u combinations work. A law excludes %u. %.1f %% of the others work.\n\n",
           share.works, share.n, share.laws, others ? 100.0 * share.works / others : 0.0);
}

/* Strategies and single features. */
static void print_overview(struct matrix *matrix)
{
    print_heads(matrix, NAME_WIDTH, "strategy");
    for (size_t r = 0; r < matrix->n_rows; r++) {
        print_first(matrix, NAME_WIDTH, matrix->rows[r].name);
        for (size_t i = 0; i < FEATURES; i++)
            print_answer(matrix, i, matrix->rows[r].of[i][i]);
        putchar('\n');
    }
    putchar('\n');
}

/* One strategy and pairs of features. */
static void print_pairs(struct matrix *matrix, const struct row *row)
{
    printf("%s%s\n\n", matrix->form == MARKDOWN ? "## " : "", row->name);
    print_share(row, 1);
    print_heads(matrix, HEAD, "");
    for (size_t i = 0; i < FEATURES; i++) {
        print_first(matrix, HEAD, features[i].name);
        for (size_t k = 0; k < FEATURES; k++)
            print_answer(matrix, k, row->of[i][k]);
        putchar('\n');
    }
    putchar('\n');
}

static const char *words_of(const struct feature *feature)
{
    return feature->words ? feature->words : feature->settings;
}

static void print_features(const struct matrix *matrix)
{
    if (matrix->form == MARKDOWN)
        printf("## Features\n\n| feature | settings |\n|---|---|\n");
    for (size_t i = 0; i < FEATURES; i++)
        if (matrix->form == MARKDOWN)
            printf("| %s | %s |\n", features[i].name, words_of(&features[i]));
        else
            printf("%-*s  %s\n", HEAD, features[i].name, words_of(&features[i]));
    putchar('\n');
}

static void print_notes(const struct matrix *matrix)
{
    char tag[TAG];
    if (matrix->form == MARKDOWN)
        printf("## Notes\n\n| note | reason |\n|---|---|\n");
    for (unsigned i = 0; i < NOTES; i++) {
        tag_of((struct answer){notes[i].is_law ? LAW : NOT_BUILT, i}, tag);
        if (matrix->form == MARKDOWN)
            printf("| %s | %s |\n", tag, notes[i].words);
        else if (matrix->noted[i])
            printf("%-*s  %s\n", HEAD, tag, notes[i].words);
    }
    if (matrix->other[0])
        printf("\nno: refused without a note; the first: %s\n", matrix->other);
    for (size_t i = 0; i < matrix->n_rows; i++)
        if (matrix->rows[i].is_missing)
            printf("\n?: %s: %s\n", matrix->rows[i].name, matrix->rows[i].why);
}

static const char signs[] =
    "yes: works. host: works on GPUs, and exchanges in the host's memory. L: a law excludes it.\n"
    "n: not built. ?: this build, or this machine, lacks a part.\n\n";

static void print_tables(struct matrix *matrix, bool pairs)
{
    if (!pairs) {
        print_share(matrix->rows, matrix->n_rows);
        print_overview(matrix);
    }
    for (size_t i = 0; i < matrix->n_rows && pairs; i++)
        print_pairs(matrix, &matrix->rows[i]);
    print_features(matrix);
    fputs(signs, stdout);
    print_notes(matrix);
}

static void print_markdown(struct matrix *matrix)
{
    printf("# Which combinations work\n\n"
           "`dpbench help matrix --markdown` prints this page. Each combination of a strategy with "
           "one\nfeature, or with two, is an experiment that dpbench makes or refuses; a note "
           "shortens the\nrefusal. `dpbench help matrix STRATEGY` prints one strategy.\n\n%s",
           signs);
    print_share(matrix->rows, matrix->n_rows);
    print_overview(matrix);
    print_features(matrix);
    print_notes(matrix);
    for (size_t i = 0; i < matrix->n_rows; i++) {
        putchar('\n');
        print_pairs(matrix, &matrix->rows[i]);
    }
}

static void print_csv(const struct matrix *matrix)
{
    static const char *const verdicts[] = {"", "yes", "host", "law", "not built", "no", "missing"};
    char settings[SETTINGS];
    printf("strategy,features,verdict,note,settings\n");
    for (size_t r = 0; r < matrix->n_rows; r++)
        for (size_t i = 0; i < FEATURES; i++)
            for (size_t k = i; k < FEATURES; k++) {
                const struct row *row = &matrix->rows[r];
                const struct answer answer = row->of[i][k];
                const bool noted = answer.verdict == LAW || answer.verdict == NOT_BUILT;
                if (answer.verdict == NONE)
                    continue;
                write_settings(matrix, row, &features[i], i < k ? &features[k] : NULL, settings);
                printf("%s,%s%s%s,%s,%s,%s\n", row->name, features[i].name, i < k ? "+" : "",
                       i < k ? features[k].name : "", verdicts[answer.verdict],
                       noted ? notes[answer.note].words : "", settings);
            }
}

/* ---- the command --------------------------------------------------------------------------- */

static dpb_status parse(const struct dpb_command *self, int argc, char **argv,
                        struct matrix *matrix, const char **strategy)
{
    for (int i = 2; i < argc; i++) { /* behind `help matrix` */
        if (strcmp(argv[i], "--markdown") == 0 && matrix->form == TABLES)
            matrix->form = MARKDOWN;
        else if (strcmp(argv[i], "--csv") == 0 && matrix->form == TABLES)
            matrix->form = CSV;
        else if (argv[i][0] != '-' && !*strategy)
            *strategy = argv[i];
        else
            return dpb_usage_error(self, "help matrix takes one strategy, and --markdown or --csv");
    }
    return DPB_OK;
}

static int command_help(const struct dpb_command *self, int argc, char **argv)
{
    struct matrix matrix = {0};
    const char *strategy = NULL;
    dpb_status status = parse(self, argc, argv, &matrix, &strategy);
    DPB_THEN(status, find_rows(&matrix, strategy));
    for (size_t i = 0; i < matrix.n_rows; i++)
        answer_row(&matrix, &matrix.rows[i]);
    if (status == DPB_OK && matrix.n_rows == 0)
        status = dpb_usage_error(self, "no strategy is called '%s'; `dpbench help comm` lists them",
                                 strategy ? strategy : "");
    else if (status == DPB_OK && matrix.form == MARKDOWN)
        print_markdown(&matrix);
    else if (status == DPB_OK && matrix.form == CSV)
        print_csv(&matrix);
    else if (status == DPB_OK)
        print_tables(&matrix, strategy);
    free(matrix.rows);
    return dpb_status_exit_code(status);
}

/* `dpbench help` becomes this program for the word `matrix`. */
int main(int argc, char **argv)
{
    static const struct dpb_program_command commands[] = {{"help", command_help}, {0}};
    return dpb_program_main(&(struct dpb_program){.commands = commands}, argc, argv);
}
