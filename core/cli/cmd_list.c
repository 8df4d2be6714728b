/* cmd_list.c - `dpbench list`: the experiments that come with dpbench, each with its
 * question. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

/* Whether each word stands in the name of an experiment's file or in its text. */
static bool matches(const char *name, const char *text, char *const *words)
{
    for (; *words != NULL; words++)
        if (!strcasestr(name, *words) && !strcasestr(text, *words))
            return false;
    return true;
}

/* An experiment begins with its question: the comment up to the first empty line. */
static void print_experiment(const char *name, const char *text)
{
    printf("  %.*s\n", (int)(strrchr(name, '.') - name), name);
    for (const char *line = text; line[0] == ';' && line[1] == ' ';) {
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
            return dpb_unknown_option(self, argv[i]);
    DPB_TRY(dpb_experiments_find("*", &files));
    dpb_status status = DPB_OK;
    for (size_t i = 0; status == DPB_OK && i < files.gl_pathc; i++) {
        const char *name = strrchr(files.gl_pathv[i], '/') + 1;
        char *text = NULL;
        status = dpb_shared_read(files.gl_pathv[i], &text);
        if (status == DPB_OK && matches(name, text, argv + 1)) {
            print_experiment(name, text);
            n++;
        }
        free(text);
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
