/* programs.c - commands that are programs of their own, dpbench's and the user's: where they are,
 * and how this process becomes one of them; see cli.h. */
#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"

#define PREFIX "dpbench-"

/* ---- places -------------------------------------------------------------------------------- */

/* The i-th directory with programs: of a build, of an installation, then those of PATH. False:
 * there are no more. */
static bool place_at(size_t i, char directory[PATH_MAX])
{
    char own[PATH_MAX - 64];
    const char *at = getenv("PATH");
    if (i < 2) {
        if (!dpb_own_directory(own, sizeof own))
            own[0] = '\0';
        snprintf(directory, PATH_MAX, i == 0 ? "%s" : "%s/../libexec/dpbench", own);
        return true;
    }
    for (i -= 2; at && i > 0; i--) {
        at = strchr(at, ':');
        at = at ? at + 1 : NULL;
    }
    const int length = at ? (int)strcspn(at, ":") : 0;
    snprintf(directory, PATH_MAX, "%.*s", length > 0 ? length : 1, length > 0 ? at : ".");
    return at != NULL;
}

static bool is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static bool is_name(const char *name)
{
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || (n > 0 && name[n] != '\0' && strchr("_-", name[n])))
        n++;
    return n > 0 && name[n] == '\0';
}

bool dpb_program_find(const char *name, char path[PATH_MAX])
{
    char directory[PATH_MAX];
    for (size_t i = 0; is_name(name) && place_at(i, directory); i++)
        if (snprintf(path, PATH_MAX, "%s/" PREFIX "%s", directory, name) < PATH_MAX &&
            is_program(path))
            return true;
    return false;
}

bool dpb_program_is_users(const char *name)
{
    return !dpb_command_find(name) && strcmp(name, "sweep") != 0 && strcmp(name, "matrix") != 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* The first of a name is the one that runs. */
static bool is_first(const char *path, const char *name)
{
    char found[PATH_MAX];
    return dpb_program_find(name, found) && strcmp(found, path) == 0;
}

void dpb_programs_print(FILE *out)
{
    char directory[PATH_MAX];
    for (size_t i = 0; place_at(i, directory); i++) {
        char pattern[PATH_MAX + 16];
        glob_t files;
        snprintf(pattern, sizeof pattern, "%s/" PREFIX "*", directory);
        if (glob(pattern, 0, NULL, &files) != 0)
            continue;
        for (size_t k = 0; k < files.gl_pathc; k++) {
            const char *path = files.gl_pathv[k];
            const char *name = path + strlen(directory) + sizeof "/" PREFIX - 1;
            if (dpb_program_is_users(name) && is_first(path, name))
                fprintf(out, "  dpbench %s ...\n      a program of yours: %s\n", name, path);
        }
        globfree(&files);
    }
}

/* ---- becoming one -------------------------------------------------------------------------- */

static char **own_words;

void dpb_program_words(char **words)
{
    own_words = words;
}

/* Returns the exit code if there is no such program. */
static int become(const char *path, char **words)
{
    dpb_stdout_back();
    fflush(NULL);
    execv(path, words);
    dpb_status status = dpb_fail(DPB_IO, "%s: %s", path, strerror(errno));
    return dpb_status_exit_code(status);
}

int dpb_program_become(const char *name)
{
    char path[PATH_MAX], own[PATH_MAX - 64];
    if (dpb_program_find(name, path))
        return become(path, own_words);
    if (!dpb_own_directory(own, sizeof own))
        return dpb_status_exit_code(
            dpb_fail(DPB_UNSUPPORTED, "/proc is not mounted, by which dpbench finds its programs"));
    return dpb_status_exit_code(dpb_fail(DPB_IO,
                                         "the program " PREFIX "%s is missing: it belongs into %s "
                                         "or %s/../libexec/dpbench",
                                         name, own, own));
}

int dpb_program_become_users(const char *path, char **words)
{
    /* Ignored signals would stay so. */
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    words[0] = (char *)(uintptr_t)path;
    return become(path, words);
}

dpb_status dpb_program_itself(char path[PATH_MAX])
{
    if (dpb_own_program(path, PATH_MAX) && access(path, X_OK) == 0)
        return DPB_OK;
    return dpb_fail(DPB_FAILED, "cannot find dpbench by /proc/self/exe: it was moved or replaced "
                                "after its start, or /proc is not mounted");
}

int dpb_program_become_itself(char **words)
{
    char path[PATH_MAX];
    dpb_status status = dpb_program_itself(path);
    words[0] = path;
    return status == DPB_OK ? become(path, words) : dpb_status_exit_code(status);
}
