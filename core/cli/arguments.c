/* arguments.c - the command line of run, check and rerun, and the files that came with dpbench: see
 * cli.h. */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/settings.h"
#include "cli/cell.h"
#include "cli/cli.h"
#include "cli/derive.h"
#include "cli/sweep_options.h"
#include "record/demands.h"

/* ---- the files that came with dpbench -------------------------------------------------------- */

bool dpb_shared_find(const char *name, char directory[PATH_MAX], char *tried, size_t size)
{
    static const char *const places[] = {"../share/dpbench", "..", "../.."};
    char own[PATH_MAX - 128], place[PATH_MAX];
    tried[0] = '\0';
    if (!dpb_own_directory(own, sizeof own))
        return false;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(place, sizeof place, "%s/%s/%s", own, places[i], name);
        if (realpath(place, directory))
            return true;
        size_t used = strlen(tried);
        snprintf(tried + used, size - used, "%s%s", used > 0 ? ", " : "", place);
    }
    return false;
}

dpb_status dpb_shared_directory(const char *name, char directory[PATH_MAX])
{
    char tried[2 * PATH_MAX];
    if (dpb_shared_find(name, directory, tried, sizeof tried))
        return DPB_OK;
    if (tried[0] == '\0')
        return dpb_fail(DPB_UNSUPPORTED, "/proc is not mounted, by which dpbench finds its files");
    return dpb_fail(DPB_IO, "the directory %s of dpbench is missing; tried %s", name, tried);
}

dpb_status dpb_experiments_find(const char *pattern, glob_t *files)
{
    char directory[PATH_MAX], paths[PATH_MAX + NAME_MAX];
    DPB_TRY(dpb_shared_directory("conf", directory));
    snprintf(paths, sizeof paths, "%s/%s.ini", directory, pattern);
    const int found = glob(paths, 0, NULL, files);
    DPB_TRY(dpb_allocated(found != GLOB_NOSPACE));
    if (found != 0)
        return dpb_fail(DPB_USAGE, "there is no experiment '%s' in %s; `dpbench list` lists them",
                        pattern, directory);
    return DPB_OK;
}

/* The file of the experiment of this name, which is no pattern; *path is the caller's. */
static dpb_status find_named(const char *name, char **path)
{
    glob_t files;
    DPB_TRY(dpb_experiments_find(name, &files));
    *path = strdup(files.gl_pathv[0]);
    globfree(&files);
    return dpb_allocated(*path);
}

dpb_status dpb_shared_read(const char *path, char **text)
{
    size_t size = 0;
    char *read = NULL;
    errno = 0;
    FILE *file = fopen(path, "re");
    bool whole = file && getdelim(&read, &size, '\0', file) >= 0;
    if (file)
        fclose(file);
    if (!whole) {
        free(read);
        return dpb_fail(DPB_IO, "%s: %s", path, errno != 0 ? strerror(errno) : "it is empty");
    }
    *text = read;
    return DPB_OK;
}

/* ---- the command line ------------------------------------------------------------------------ */

dpb_status dpb_usage_error(const struct dpb_command *command, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    dpb_status status = dpb_failv(DPB_USAGE, format, list);
    va_end(list);
    fprintf(stderr,
            "usage: %s\n       `dpbench help %s` says more, `dpbench help` lists all commands\n",
            command->usage, command->name);
    return status;
}

dpb_status dpb_unknown_option(const struct dpb_command *command, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals)
        return dpb_usage_error(command, "unknown option '%s'", word);
    return dpb_usage_error(command, "'%s': an option and its value are two words: %.*s %s", word,
                           (int)(equals - word), word, equals + 1);
}

const char *dpb_missing_option(const char *word)
{
    const char *dot = strrchr(word, '.');
    if (!dot || strchr(word, '='))
        return NULL;
    return strcmp(dot, ".ini") == 0 ? "-c" : strcmp(dot, ".json") == 0 ? "rerun" : NULL;
}

int dpb_exit_code_first(int a, int b)
{
    static const int order[] = {2, 1, 3, 5, 4, 6};
    if (a >= 128 || b >= 128) /* a signal's */
        return a >= 128 ? a : b;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (a == order[i] || b == order[i])
            return order[i];
    return a != 0 ? a : b;
}

/* The argument of the option at argv[*i]. */
static dpb_status take_value(const struct dpb_command *command, int argc, char **argv, int *i,
                             const char **value)
{
    const char *option = argv[*i];
    if (*value)
        return dpb_usage_error(command, "%s is given twice", option);
    if (*i + 1 >= argc)
        return dpb_usage_error(command, "%s needs a file", option);
    *value = argv[++*i];
    if ((*value)[0] == '\0')
        return dpb_usage_error(command, "%s needs a file, not an empty name", option);
    return DPB_OK;
}

static dpb_status take_demand(const struct dpb_command *command, int argc, char **argv, int *i,
                              json_t **demands)
{
    const char *option = argv[*i];
    if (*i + 1 >= argc)
        return dpb_usage_error(command, "%s needs FIELD[@KEY=VALUE,...]=NUMBER", option);
    return dpb_demand_parse(command->name, option, argv[++*i], demands);
}

dpb_status dpb_arguments_take_form(const struct dpb_command *command, unsigned accepts, int argc,
                                   char **argv, int *i, struct dpb_arguments *arguments)
{
    const bool series = accepts & DPB_ACCEPTS_SERIES;
    const bool lines = series && strcmp(argv[*i], "--jsonl") == 0;
    if (series && (strcmp(argv[*i], "--least") == 0 || strcmp(argv[*i], "--most") == 0))
        return take_demand(command, argc, argv, i, &arguments->demands);
    if (strcmp(argv[*i], "--output") == 0) {
        DPB_TRY(take_value(command, argc, argv, i, &arguments->output));
        if (strcmp(arguments->output, "-") == 0)
            return dpb_usage_error(command, "--output takes a file; the document goes to standard "
                                            "output with --json");
        return DPB_OK;
    }
    if (!lines && strcmp(argv[*i], "--json") != 0)
        return dpb_unknown_option(command, argv[*i]);
    if (lines ? arguments->jsonl : arguments->json)
        return dpb_usage_error(command, "%s is given twice", argv[*i]);
    *(lines ? &arguments->jsonl : &arguments->json) = true;
    if (arguments->json && arguments->jsonl)
        return dpb_usage_error(command, "one form at a time: --json or --jsonl");
    return DPB_OK;
}

static dpb_status take_option(const struct dpb_command *command, unsigned accepts, bool reads,
                              int argc, char **argv, int *i, struct dpb_arguments *arguments)
{
    const char *option = argv[*i];
    if (strcmp(option, "-c") == 0 && (accepts & DPB_ACCEPTS_CONFIG))
        return take_value(command, argc, argv, i, &arguments->file);
    if (strcmp(option, "--resume") == 0 && reads) {
        arguments->resume = true;
        return DPB_OK;
    }
    if (strcmp(option, "--trust") == 0 && reads) {
        arguments->trust = true;
        return DPB_OK;
    }
    if (accepts & DPB_ACCEPTS_OUTPUT)
        return dpb_arguments_take_form(command, accepts, argc, argv, i, arguments);
    return dpb_unknown_option(command, option);
}

static bool on_command_line(const struct dpb_setting *setting)
{
    return setting && strcmp(setting->origin, DPB_COMMAND_LINE) == 0;
}

/* `keys` (ended by NULL) exclude each other: one on the command line replaces the file's. */
static void settle_one_of(struct dpb_config *config, const char *section, const char *const *keys)
{
    bool given = false;
    for (size_t i = 0; keys[i]; i++)
        given |= on_command_line(dpb_config_get(config, section, keys[i]));
    for (size_t i = 0; given && keys[i]; i++)
        if (!on_command_line(dpb_config_get(config, section, keys[i])))
            dpb_config_remove(config, section, keys[i]);
}

static void settle_lengths(struct dpb_config *config)
{
    static const char *const comm_test[] = {"iterations", "seconds", NULL};
    static const char *const every[] = {"every", "every_epochs", NULL};
    static const char *const target[] = {"target", "target_loss", NULL};
    settle_one_of(config, "run", dpb_run_lengths);
    settle_one_of(config, "comm_test", comm_test);
    settle_one_of(config, "eval", every);
    settle_one_of(config, "eval", target);
}

/* The experiment of -c; the usage's `-c FILE.ini | NAME` may be read as if -c took a name. */
static dpb_status read_experiment(const char *path, struct dpb_arguments *arguments)
{
    if (dpb_cell_is(path))
        return dpb_cell_read(path, arguments);
    if (dpb_plugin_name_valid(path) && access(path, F_OK) != 0)
        return dpb_fail(DPB_USAGE,
                        "-c %s: there is no such file; the name of an experiment that "
                        "`dpbench list` lists stands without -c",
                        path);
    return dpb_config_read(arguments->config, path);
}

static dpb_status refuse_word(const struct dpb_command *command, unsigned accepts, const char *word)
{
    const char *hint = accepts & DPB_ACCEPTS_CONFIG ? dpb_missing_option(word) : NULL;
    if (hint && strcmp(hint, "-c") == 0)
        return dpb_usage_error(command, "'%s' is no setting: did you mean '-c %s'?", word, word);
    return dpb_usage_error(command, "'%s' is no setting: write SECTION.KEY=VALUE", word);
}

/* KEY=VALUE without a section: the first section of core that has this key. */
static dpb_status refuse_bare_key(const char *assignment)
{
    size_t length = strcspn(assignment, "=");
    for (size_t i = 0; i < dpb_settings_n_sections; i++)
        for (const struct dpb_option *row = dpb_settings_sections[i].rows; row->name; row++)
            if (strlen(row->name) == length && strncmp(row->name, assignment, length) == 0)
                return dpb_fail(DPB_USAGE,
                                DPB_COMMAND_LINE ": '%s' is not SECTION.KEY=VALUE; did you mean "
                                                 "'%s.%s'?",
                                assignment, dpb_settings_sections[i].name, assignment);
    return dpb_fail(DPB_USAGE, DPB_COMMAND_LINE ": '%s' is not SECTION.KEY=VALUE", assignment);
}

/* "SECTION.KEY=" takes back a setting of the file; a text of core's becomes empty, which means
 * something (run.results= keeps no file). False: it is none of these. */
static bool take_back(const char *assignment, struct dpb_config *config)
{
    char section[64], key[64];
    int length = 0;
    if (sscanf(assignment, "%63[^.=].%63[^=]=%n", section, key, &length) != 2 || length == 0 ||
        assignment[length] != '\0')
        return false;
    const struct dpb_option *row = dpb_options_find(dpb_settings_rows(section), key);
    if (row ? row->type == DPB_OPT_STRING : !dpb_config_get(config, section, key))
        return false;
    dpb_config_remove(config, section, key);
    return true;
}

static dpb_status assign(struct dpb_config *config, const char *assignment)
{
    size_t key = strcspn(assignment, ".=");
    return assignment[key] == '=' ? refuse_bare_key(assignment)
                                  : dpb_config_assign(config, assignment, DPB_COMMAND_LINE);
}

static dpb_status parse(const struct dpb_command *command, unsigned accepts, dpb_read_result *read,
                        int argc, char **argv, const char **assignments,
                        struct dpb_arguments *arguments)
{
    size_t n = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            DPB_TRY(take_option(command, accepts, read != NULL, argc, argv, &i, arguments));
        } else if (read && !arguments->file) {
            arguments->file = argv[i];
        } else if (strchr(argv[i], '=')) {
            assignments[n++] = argv[i];
        } else if ((accepts & DPB_ACCEPTS_CONFIG) && !arguments->file &&
                   dpb_plugin_name_valid(argv[i])) {
            DPB_TRY(find_named(argv[i], &arguments->found));
            arguments->file = arguments->found;
        } else {
            return refuse_word(command, accepts, argv[i]);
        }
    }
    if (!arguments->file && !(accepts & DPB_CONFIG_OPTIONAL))
        return dpb_usage_error(command, "%s",
                               read ? "which result? give its file"
                                    : "which experiment? give -c FILE.ini, or a "
                                      "name that `dpbench list` lists");
    if (arguments->resume && n > 0)
        return dpb_usage_error(command, "--resume goes on with the settings of %s: leave '%s' out",
                               arguments->file, assignments[0]);
    if (arguments->file)
        DPB_TRY((read ? read : read_experiment)(arguments->file, arguments));
    for (size_t i = 0; i < n; i++) {
        if (take_back(assignments[i], arguments->config))
            continue;
        DPB_TRY(assign(arguments->config, assignments[i]));
        DPB_TRY(assign(arguments->given, assignments[i]));
    }
    settle_lengths(arguments->config);
    if (dpb_sweep_wanted(arguments->config)) /* each cell has values of its own */
        return DPB_OK;
    dpb_stdout_aside(); /* plugins may print when they are loaded */
    const dpb_status status = dpb_derive(arguments->config, strcmp(command->name, "comm") == 0);
    dpb_stdout_back();
    return status;
}

dpb_status dpb_arguments_parse(const struct dpb_command *command, unsigned accepts,
                               dpb_read_result *read, int argc, char **argv,
                               struct dpb_arguments *arguments)
{
    struct dpb_arguments result = {.config = dpb_config_create(), .given = dpb_config_create()};
    const char **assignments = calloc((size_t)argc + 1, sizeof *assignments);
    dpb_status status = dpb_allocated(result.config && result.given && assignments);
    DPB_THEN(status, parse(command, accepts, read, argc, argv, assignments, &result));
    free(assignments);
    if (status != DPB_OK)
        dpb_arguments_release(&result);
    else
        *arguments = result;
    return status;
}

void dpb_arguments_files(const struct dpb_arguments *arguments,
                         struct dpb_named_file files[DPB_ARGUMENTS_FILES])
{
    const bool reads =
        !arguments->resume && strcmp(arguments->file ? arguments->file : "-", "-") != 0;
    files[0] = (struct dpb_named_file){"-c", reads ? arguments->file : NULL, false};
    files[1] = (struct dpb_named_file){"--output", arguments->output, true};
    if (arguments->document)
        files[0].option = "the result";
}

void dpb_arguments_release(struct dpb_arguments *arguments)
{
    dpb_config_destroy(arguments->config);
    dpb_config_destroy(arguments->given);
    json_decref(arguments->document);
    json_decref(arguments->cell);
    json_decref(arguments->demands);
    free(arguments->found);
    *arguments = (struct dpb_arguments){0};
}
