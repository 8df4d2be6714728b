/* confs.c - see confs.h. */
#include "lib/confs.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "lib/command.h"
#include "lib/datasets.h"
#include "lib/launchers.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/training.h"
#include "study/sweep/sweep_list.h"

/* LeNet has a fifth of its parameters with such images. */
enum { MAX_CONFS = 128, IMAGE = 12 };

static const double deadline_s = 600.0, heavy_gmac = 0.5;

struct conf {
    char name[128]; /* of the file, without .ini */
    bool full;
    struct dpb_config *config;
    char data[512]; /* settings: small data, in the place of some that the machine may lack */
    bool real_data;
};

static char *directory; /* conf/, absolute */
static char *table;     /* what `help models` prints */

/* ---- what a file says ---------------------------------------------------------------------- */

/* The section that makes several experiments of it: [sweep], or [tune]. */
static const char *study_of(const struct conf *conf)
{
    for (size_t i = 0; i < conf->config->n_settings; i++)
        if (strcmp(conf->config->settings[i].section, "tune") == 0)
            return "tune";
    return "sweep";
}

/* The value of a setting, or the list of the axis that goes through it; "": not there. */
static const char *value_of(const struct conf *conf, const char *section, const char *key)
{
    char axis[128];
    snprintf(axis, sizeof axis, "%s.%s", section, key);
    const struct dpb_setting *plain = dpb_config_get(conf->config, section, key);
    const struct dpb_setting *list = dpb_config_get(conf->config, study_of(conf), axis);
    return list ? list->value : plain ? plain->value : "";
}

static bool is_given(const struct conf *conf, const char *section, const char *key)
{
    return value_of(conf, section, key)[0] != '\0';
}

/* Whether a list has a word. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || strchr(", ", at[-1])) && (at[n] == '\0' || strchr(", ", at[n])))
            return true;
    return false;
}

/* Whether it is a sweep or search. */
static bool is_study(const struct conf *conf)
{
    for (size_t i = 0; i < conf->config->n_settings; i++)
        if (strcmp(conf->config->settings[i].section, study_of(conf)) == 0)
            return true;
    return false;
}

struct networks {
    bool heavy; /* one of them is */
    char lightest[64];
};

static bool is_emulated(const struct conf *conf)
{
    return has_word(value_of(conf, "device", "name"), "emulated");
}

/* A network that is not computed is light. */
static struct networks networks_of(const struct conf *conf)
{
    const char *names = value_of(conf, "model", "name");
    struct networks networks = {0};
    if (is_emulated(conf))
        return networks;
    double least = INFINITY;
    for (const char *line = table; line && *line; line = strchr(line + 1, '\n')) {
        char name[64];
        double gmac;
        if (sscanf(line, " %63s %*s %*u %lf", name, &gmac) != 2 || !has_word(names, name))
            continue;
        networks.heavy |= gmac > heavy_gmac;
        if (gmac < least)
            strcpy(networks.lightest, name);
        least = gmac < least ? gmac : least;
    }
    if (!isfinite(least))
        fail_msg("%s.ini: model.name = %s is no network of `dpbench help models`", conf->name,
                 names);
    return networks;
}

/* Appends printf-like to what is in `text`. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t capacity,
                                                         const char *format, ...)
{
    va_list list;
    size_t at = strlen(text);
    va_start(list, format);
    vsnprintf(text + at, capacity - at, format, list);
    va_end(list);
}

/* ---- starting it --------------------------------------------------------------------------- */

static bool needs_launcher(const struct conf *conf)
{
    return has_word(value_of(conf, "comm", "name"), "mpi");
}

/* The processes that a command of a comment starts by mpirun or srun; 1 where it says none. */
static int count_processes(const char *line)
{
    const char *at = strstr(line, "-np ");
    if (at == NULL && strncmp(line, "srun", 4) == 0)
        at = strstr(line, "-n ");
    return at ? atoi(strchr(at, ' ')) : 1;
}

/* dpbench with `arguments`, under mpirun as `n` processes where that is what the experiment is
 * for. */
static void start_conf(const struct conf *conf, struct command *command, int n,
                       const char *arguments)
{
    if (needs_launcher(conf))
        launched(command, deadline_s, MPIRUN, n, "%s", arguments);
    else
        dpbench(command, deadline_s, "%s", arguments);
}

/* ---- its comment --------------------------------------------------------------------------- */

/* Whether the experiment, with settings of a command, asks for bf16 that the processor lacks. */
static bool lacks_bf16(const struct conf *conf, const char *settings)
{
    return !has_word(value_of(conf, "device", "name"), "cuda") && !cpu_has_bf16() &&
           (strstr(settings, "run.precision=bf16") ||
            has_word(value_of(conf, "run", "precision"), "bf16"));
}

/* Whether the command was refused, as it must be, because this machine has no RDMA device. */
static bool lacks_rdma(const struct conf *conf, const struct command *command)
{
    return has_word(value_of(conf, "comm", "name"), "ring_verbs") && command->exit_code == 2 &&
           strstr(command->err, "this machine has no RDMA device") != NULL;
}

/* The command as a shell takes it that splits at blanks alone: no argument in quotes has some. */
static void drop_quotes(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++)
        if (*from != '\'')
            *to++ = *from;
    *to = '\0';
}

/* Whether the line is a command that makes a profile for the experiment: the rest of it, or
 * NULL. */
static const char *profile_of(const char *line)
{
    static const char makes[] = ";     build/dpbench profile ";
    return strncmp(line, makes, strlen(makes)) == 0 ? strstr(line, "profile ") : NULL;
}

/* Runs those commands: the experiment names what they write. */
static void make_profiles(const struct conf *conf)
{
    char path[512], line[512];
    snprintf(path, sizeof path, "%s/%s.ini", directory, conf->name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) && line[0] == ';') {
        struct command command;
        line[strcspn(line, "\n")] = '\0';
        if (profile_of(line))
            dpbench_ends(&command, deadline_s, 0, "%s", profile_of(line));
    }
    fclose(file);
}

/* The dilation of `dpbench hosts`, which is to be the experiment's. */
static void set_dilation(const char *line)
{
    char dilation[16];
    const char *at = strstr(line, "--dilation ");
    if (at && sscanf(at, "--dilation %15s", dilation) == 1)
        setenv("DPBENCH_DILATION", dilation, 1);
    else
        unsetenv("DPBENCH_DILATION");
}

/* Saves what `settings` of a command `dpbench eval` load: the experiment after a step. */
static void save_model(const struct conf *conf, const char *settings)
{
    struct command command;
    char file[64];
    const char *load = strstr(settings, "checkpoint.load=");
    if (!load || sscanf(load, "checkpoint.load=%63s", file) != 1)
        fail_msg("%s.ini: `dpbench eval%s` loads nothing", conf->name, settings);
    dpbench_ends(&command, deadline_s, 0,
                 "-c %s/%s.ini run.results= run.steps=1 run.warmup_steps=0 run.batch=2 "
                 "eval.final=no checkpoint.save=%s %s",
                 directory, conf->name, file, conf->data);
}

/* One of the commands in the comment, up to where two blanks begin the words about it. By whichever
 * launcher, its settings are checked; an evaluation is made. */
static void expect_command_works(const struct conf *conf, char *line)
{
    const bool evaluates = strncmp(line, "build/dpbench eval ", 19) == 0;
    struct command command;
    char own[256], arguments[1024];
    char *end = strstr(line, "  ");
    if (end != NULL)
        *end = '\0';
    snprintf(own, sizeof own, "conf/%s.ini", conf->name);
    if (strstr(line, own) == NULL)
        fail_msg("%s.ini: the command '%s' is of another file", conf->name, line);
    char *settings = strstr(line, own) + strlen(own);
    drop_quotes(settings);
    snprintf(arguments, sizeof arguments, "%s -c %s/%s.ini%s%s %s", evaluates ? "eval" : "check",
             directory, conf->name, settings, evaluates ? "" : " run.results=", conf->data);
    if (evaluates)
        save_model(conf, settings);
    if (strstr(line, "--hostfile") != NULL) /* its ranks are meant for several machines */
        append(arguments, sizeof arguments, " run.memory=warn");
    if (lacks_bf16(conf, settings)) {
        expect_bf16_refused("%s", arguments);
        return;
    }
    set_dilation(line);
    if (strstr(settings, "comm.transport=mpi"))
        launched(&command, deadline_s, MPIRUN, count_processes(line), "%s", arguments);
    else
        start_conf(conf, &command, 1, arguments);
    unsetenv("DPBENCH_DILATION");
    if (!lacks_rdma(conf, &command) && (command.exit_code != 0 || command.out[0] == '\0'))
        fail_msg("'%s' does not work: %s", line, command.err);
}

static void test_comment(const struct conf *conf)
{
    char path[512], line[512];
    bool question = false, reading = false;
    size_t n_commands = 0;
    snprintf(path, sizeof path, "%s/%s.ini", directory, conf->name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (bool first = true; fgets(line, sizeof line, file) && line[0] == ';'; first = false) {
        line[strcspn(line, "\n")] = '\0';
        if (strlen(line) > 110)
            fail_msg("%s.ini: a line is too long: '%s'", conf->name, line);
        question |= first && isalpha((unsigned char)line[2]);
        reading |= strncmp(line, "; How to read it: ", 18) == 0;
        if (strncmp(line, ";     ", 6) != 0 || strstr(line, "build/dpbench ") == NULL ||
            profile_of(line))
            continue;
        expect_command_works(conf, line + 6);
        n_commands++;
    }
    fclose(file);
    if (!question || !reading || n_commands == 0)
        fail_msg("%s.ini: its comment has no %s", conf->name,
                 !question  ? "question in its first line"
                 : !reading ? "'How to read it: '"
                            : "command");
}

/* ---- what dpbench says of it --------------------------------------------------------------- */

/* One cell of a sweep: the middle value of each axis, of networks the lightest, of profiles
 * ResNet-50's, which has few weights; all of the data. */
static void choose_cell(const struct conf *conf, const char *lightest, char *settings,
                        size_t capacity)
{
    for (size_t i = 0; i < conf->config->n_settings; i++) {
        const struct dpb_setting *axis = &conf->config->settings[i];
        if (strcmp(axis->section, "sweep") != 0 || strchr(axis->key, '.') == NULL ||
            strcmp(axis->key, "data.name") == 0) /* each of these wants settings of its own */
            continue;
        char **values;
        size_t n;
        if (dpb_sweep_list(axis->value, axis->origin, &values, &n) != DPB_OK)
            fail_msg("%s.ini: sweep.%s = %s is no list", conf->name, axis->key, axis->value);
        const char *value = strcmp(axis->key, "model.name") == 0 ? lightest : values[n / 2];
        for (size_t v = 0; v < n && strcmp(axis->key, "model.file") == 0; v++)
            if (strstr(values[v], "resnet50") && !strstr(value, "resnet50"))
                value = values[v];
        append(settings, capacity, " %s=", axis->key);
        for (; *value != '\0'; value++) /* "1 GiB" is one word of a command */
            if (*value != ' ')
                append(settings, capacity, "%c", *value);
        dpb_sweep_list_destroy(values, n);
    }
}

/* Whether an experiment before this one has read the same real data. */
static bool has_read(const struct conf *conf)
{
    static char sources[MAX_CONFS][256];
    static size_t n;
    char source[sizeof *sources];
    snprintf(source, sizeof source, "%s %s", value_of(conf, "data", "name"),
             value_of(conf, "data", "path"));
    for (size_t i = 0; i < n; i++)
        if (strcmp(sources[i], source) == 0)
            return true;
    strcpy(sources[n++], source);
    return false;
}

/* As it stands, every cell, or it says what is missing: the data that it is about. Real data takes
 * long to read: the first experiment of each source reads it, for one cell. */
static void test_check(const struct conf *conf, const char *lightest)
{
    struct command command;
    char arguments[1024];
    if (conf->real_data && has_read(conf))
        return;
    snprintf(arguments, sizeof arguments, "check -c %s/%s.ini", directory, conf->name);
    if (conf->real_data)
        choose_cell(conf, lightest, arguments, sizeof arguments);
    start_conf(conf, &command, 1, arguments);
    bool names_data = strstr(command.err, "data.path") != NULL;
    if (command.exit_code != 0 && (command.exit_code != 2 || !names_data))
        fail_msg("check %s.ini: exit %d: %s", conf->name, command.exit_code, command.err);
}

static bool exchanges(const char *strategy, const char *mode)
{
    return strcmp(strategy, "independent") != 0 && strcmp(mode, "forward") != 0;
}

static void expect_row(const struct conf *conf, const json_t *row)
{
    json_t *cell = json_object_get(row, "cell");
    const char *mode = json_string_value(json_object_get(cell, "run.mode"));
    const json_t *verified = json_at(row, "verified");
    bool good = exchanges(json_text_at(row, "strategy"), mode ? mode : "train")
                    ? json_is_true(verified)
                    : json_is_null(verified);
    bool proved = json_is_true(json_at(row, "proved"));
    /* Workers that do not wait for each other in two steps may have none in common. */
    const char *kind = json_text_at(row, "consistency");
    bool alone = strcmp(kind, "none") == 0 || strcmp(kind, "asynchronous") == 0 ||
                 strncmp(kind, "batches(", 8) == 0 ||
                 (strncmp(kind, "stale(", 6) == 0 && strtol(kind + 6, NULL, 10) >= 2);
    bool ran = strcmp(json_text_at(row, "status"), "ok") == 0 ||
               (alone && strcmp(json_text_at(row, "status"), "not timed") == 0);
    if (ran && good && proved == is_given(conf, "run", "prove"))
        return;
    char *text = json_dumps(row, 0);
    fail_msg("%s.ini: this row is not as it should be: %s", conf->name, text);
}

static void expect_verdicts(const struct conf *conf, const json_t *result)
{
    static const char *const checks[] = {"verification.pattern", "verification.replicas"};
    bool wanted = exchanges(json_text_at(result, "strategy.name"),
                            json_text_at(result, "config.run.mode.value"));
    assert_string_equal(json_text_at(result, "status"), "ok");
    for (size_t i = 0; i < 2; i++)
        if (strcmp(json_text_at(result, checks[i]), wanted ? "pass" : "not_applicable") != 0)
            fail_msg("%s.ini: %s is %s", conf->name, checks[i], json_text_at(result, checks[i]));
}

/* Whether all cells run, or one. `check`, by the commands in the comment, looks at every cell. */
static bool takes_all_cells(const struct conf *conf)
{
    return conf->full || getenv("DPB_ALL_CELLS") != NULL;
}

/* Two steps with few samples, steady or not, all cells once or one of them. */
static void test_run(const struct conf *conf, const struct networks *networks)
{
    struct command command;
    char settings[1024] = "run.results= run.steps=2 run.warmup_steps=0 run.steady_limit_s=0";
    bool sweep = is_study(conf), all_samples = is_given(conf, "run", "global_batch");
    append(settings, sizeof settings, " %s %s",
           is_emulated(conf) ? "run.dilation=1" /* the batch is the profile's */
           : all_samples     ? "run.global_batch=16"
                             : "run.batch=2",
           conf->data);
    if (is_given(conf, "eval", "every"))
        append(settings, sizeof settings, " eval.every=1");
    if (is_given(conf, "eval", "require_target")) /* two steps do not get there */
        append(settings, sizeof settings, " eval.require_target=no");
    if (sweep)
        append(settings, sizeof settings, " %s.repeats=1 %s.retry_disturbed=0", study_of(conf),
               study_of(conf));
    if (is_given(conf, "sweep", "accuracy"))
        append(settings, sizeof settings, " sweep.accuracy=2");
    if (!takes_all_cells(conf)) {
        choose_cell(conf, networks->lightest, settings, sizeof settings);
        if (strcmp(networks->lightest, "lenet") == 0)
            append(settings, sizeof settings, " model.image=%d", IMAGE);
    }
    if (lacks_bf16(conf, "")) {
        expect_bf16_refused("-c %s/%s.ini %s run.precision=bf16", directory, conf->name, settings);
        append(settings, sizeof settings, " run.precision=fp32");
    }
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "-c %s/%s.ini --json %s", directory, conf->name,
             settings);
    start_conf(conf, &command, 2, arguments);
    if (lacks_rdma(conf, &command))
        return;
    if (command.exit_code != 0 || command.json == NULL)
        fail_msg("%s.ini %s: exit %d: %s", conf->name, settings, command.exit_code, command.err);
    size_t i;
    const json_t *row;
    json_array_foreach(json_at(command.json, "rows"), i, row)
    {
        expect_row(conf, row);
    }
    if (!sweep)
        expect_verdicts(conf, command.json);
    else if (i == 0)
        fail_msg("%s.ini: the sweep has no rows", conf->name);
}

static void set_data(struct conf *conf)
{
    static const char *const sources[] = {"idx", "cifar10", "image_folder"};
    const char *names = value_of(conf, "data", "name");
    size_t at = 0;
    if (names[0] == '\0' || has_word(names, "synthetic"))
        at = (size_t)snprintf(conf->data, sizeof conf->data,
                              "data.distinct=2 data.test_samples=16 ");
    if (has_word(names, "tokens")) /* the text of the experiments themselves */
        snprintf(conf->data + at, sizeof conf->data - at, "data.path=%s", directory);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (has_word(names, sources[i])) {
            snprintf(conf->data + at, sizeof conf->data - at, "data.path=%s", sources[i]);
            conf->real_data = true;
        }
}

/* A plugin that the experiment needs and that was not built; NULL: none. */
static const char *lacks_plugin(const struct conf *conf)
{
    static const struct {
        const char *name, *plugin;
    } strategies[] = {
        {"ring_verbs", "comm_ring_verbs"}, {"gloo", "comm_gloo"}, {"mpi", "comm_mpi"}};
    if (strstr(conf->data, "image_folder") != NULL && !have_plugin("data_image_folder"))
        return "data_image_folder";
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (has_word(value_of(conf, "comm", "name"), strategies[i].name) &&
            !have_plugin(strategies[i].plugin))
            return strategies[i].plugin;
    return NULL;
}

/* ---- on GPUs ------------------------------------------------------------------------------- */

/* What `dpbench plugins` says that keeps a plugin from running here, appended to `reasons`. */
static void add_reason(const json_t *plugins, const char *list, const char *key, const char *kind,
                       const char *names, char *reasons, size_t capacity)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_at(plugins, list), i, row)
    {
        const char *reason = json_string_value(json_object_get(row, key));
        if (reason && strcmp(json_text_at(row, "kind"), kind) == 0 &&
            has_word(names, json_text_at(row, "name")))
            append(reasons, capacity, "%s\n", reason);
    }
}

/* Whether one of the lines is in the text. */
static bool names_reason(const char *text, char *reasons)
{
    for (char *line = strtok(reasons, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(text, line))
            return true;
    return false;
}

/* As it stands it passes where there are GPUs; else it is refused for the reason that `plugins`
 * has. */
static void expect_gpu_or_reason(const struct conf *conf)
{
    static const char *const kinds[] = {"device", "comm"};
    struct command plugins, check;
    char arguments[1024], reasons[4096] = "";
    dpbench(&plugins, deadline_s, "plugins --json");
    for (size_t i = 0; i < 2; i++) {
        const char *names = value_of(conf, kinds[i], "name");
        add_reason(plugins.json, "plugins", "missing", kinds[i], names, reasons, sizeof reasons);
        add_reason(plugins.json, "not_built", "reason", kinds[i], names, reasons, sizeof reasons);
    }
    snprintf(arguments, sizeof arguments, "check -c %s/%s.ini", directory, conf->name);
    dpbench(&check, deadline_s, "%s", arguments);
    bool lacks = reasons[0] != '\0';
    if (!lacks && is_cuda_left_out() && !have_plugin("device_cuda")) {
        assert_int_equal(check.exit_code, 2);
        expect_part(check.err, "unknown device 'cuda'");
    } else if (check.exit_code != (lacks ? 2 : 0) || (lacks && !names_reason(check.err, reasons)))
        fail_msg("check %s.ini: exit %d: %s", conf->name, check.exit_code, check.err);
}

/* Its commands pass `check` with the CUDA for tests, and the NCCL for tests, where these were
 * built. */
static void test_gpu_conf(const struct conf *conf)
{
    bool by_nccl = has_word(value_of(conf, "comm", "name"), "nccl");
    expect_gpu_or_reason(conf);
    if (!have_stand_in(by_nccl ? "comm_nccl" : "device_cuda"))
        return;
    use_stand_in(true);
    test_check(conf, networks_of(conf).lightest);
    test_comment(conf);
    use_stand_in(false);
}

static bool read_conf(struct conf *conf)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.ini", directory, conf->name);
    conf->config = dpb_config_create();
    return conf->config && dpb_config_read(conf->config, path) == 0;
}

static bool is_for_gpus(struct conf *conf)
{
    bool is = read_conf(conf) && has_word(value_of(conf, "device", "name"), "cuda");
    dpb_config_destroy(conf->config);
    return is;
}

static void test_conf(void **state)
{
    struct conf *conf = *state;
    assert_true(read_conf(conf));
    set_data(conf);
    if (has_word(value_of(conf, "device", "name"), "cuda")) {
        if (!conf->full)
            test_gpu_conf(conf);
        dpb_config_destroy(conf->config);
        return;
    }
    if (!have_cpu_device()) {
        print_message("needs the cpu device\n");
        dpb_config_destroy(conf->config);
        skip();
    }
    if (lacks_plugin(conf)) {
        print_message("needs the plugin %s\n", lacks_plugin(conf));
        dpb_config_destroy(conf->config);
        skip();
    }
    make_profiles(conf);
    const struct networks networks = networks_of(conf);
    if (conf->full == networks.heavy)
        test_run(conf, &networks);
    if (!conf->full && conf->real_data)
        test_check(conf, networks.lightest);
    if (!conf->full)
        test_comment(conf); /* the last: its commands may go on from what the run has saved */
    dpb_config_destroy(conf->config);
}

/* ---- all of them --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct conf *)a)->name, ((const struct conf *)b)->name);
}

static size_t list_confs(struct conf confs[MAX_CONFS], bool full)
{
    size_t n = 0;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && n < MAX_CONFS && (entry = readdir(entries));) {
        size_t length = strlen(entry->d_name);
        if (length <= 4 || strcmp(entry->d_name + length - 4, ".ini") != 0)
            continue;
        confs[n].full = full;
        snprintf(confs[n++].name, sizeof confs->name, "%.*s", (int)length - 4, entry->d_name);
    }
    if (entries)
        closedir(entries);
    qsort(confs, n, sizeof *confs, by_name);
    return n;
}

static int set_up(void **state)
{
    struct command command;
    int result = sandbox_setup(state);
    unsetenv("DPBENCH_PLUGIN_PATH");
    launchers_allow_root();
    dataset_idx("idx", 1100, 16, IMAGE);
    dataset_cifar10("cifar10", 30, 16);
    dataset_image_folder("image_folder", 150, 8);
    dpbench(&command, deadline_s, "help models");
    table = strdup(command.out);
    return result;
}

static int tear_down(void **state)
{
    free(table);
    free(directory);
    return sandbox_teardown(state);
}

int confs_test(bool full)
{
    static struct conf confs[MAX_CONFS];
    directory = realpath("conf", NULL);
    size_t n = directory ? list_confs(confs, full) : 0;
    if (n == 0) {
        fprintf(stderr, "conf/ has no experiments: run this from the repository's root\n");
        return 1;
    }
    for (size_t i = 0; i < n; i++)
        add_case(test_conf, &confs[i], "%s%s",
                 is_for_gpus(&confs[i]) && have_stand_in("device_cuda") ? "cuda: " : "",
                 confs[i].name);
    return test_main(set_up, tear_down);
}
