/* cmd_list.c - `dpbench list`: the experiments that come with dpbench, each with its
 * question. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

/* An experiment begins with its question: the comment up to the first empty line. */
struct experiment {
    char *text; /* @owned: the whole file */
    const char *name;
    int name_length;
};

static dpb_status read_experiment(const char *path, struct experiment *experiment)
{
    char *text;
    DPB_TRY(dpb_shared_read(path, &text));
    const char *name = strrchr(path, '/') + 1;
    *experiment = (struct experiment){
        .text = text, .name = name, .name_length = (int)(strrchr(name, '.') - name)};
    return DPB_OK;
}

/* Whether each word stands in the experiment's name or text. */
static bool matches(const struct experiment *experiment, char *const *words)
{
    for (; *words != NULL; words++)
        if (!strcasestr(experiment->name, *words) && !strcasestr(experiment->text, *words))
            return false;
    return true;
}

static void print_experiment(const struct experiment *experiment)
{
    printf("  %.*s\n", experiment->name_length, experiment->name);
    for (const char *line = experiment->text; line[0] == ';' && line[1] == ' ';) {
        const int length = (int)strcspn(line, "\n");
        printf("      %.*s\n", length - 2, line + 2);
        line += length + (line[length] == '\n');
    }
}

static dpb_status list(const struct dpb_command *self, int argc, char **argv)
{
    glob_t files;
    size_t n = 0;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-')
            return dpb_usage_error(self, "unknown option '%s'", argv[i]);
    DPB_TRY(dpb_experiments_find("*", &files));
    dpb_status status = DPB_OK;
    for (size_t i = 0; status == DPB_OK && i < files.gl_pathc; i++) {
        struct experiment experiment = {0};
        status = read_experiment(files.gl_pathv[i], &experiment);
        if (status != DPB_OK)
            break;
        if (matches(&experiment, argv + 1)) {
            print_experiment(&experiment);
            n++;
        }
        free(experiment.text);
    }
    if (status == DPB_OK && n > 0)
        printf("%zu experiment%s in %.*s; `dpbench run NAME` runs one\n", n, n == 1 ? "" : "s",
               (int)(strrchr(files.gl_pathv[0], '/') - files.gl_pathv[0]), files.gl_pathv[0]);
    else if (status == DPB_OK)
        status = dpb_fail(DPB_USAGE, "no experiment mentions %s%s", argv[1],
                          argc > 2 ? " and the other words" : "");
    globfree(&files);
    return status;
}

int dpb_command_list(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_status_exit_code(list(self, argc, argv));
}
