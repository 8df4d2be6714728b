/* shared.c - the files that came with dpbench: see cli.h. */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

dpb_status dpb_shared_directory(const char *name, char directory[PATH_MAX])
{
    static const char *const places[] = {"../share/dpbench", "..", "../.."};
    char exe[PATH_MAX - 128], place[PATH_MAX], tried[2 * PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (!slash)
        return dpb_fail(DPB_UNSUPPORTED, "/proc is not mounted, by which dpbench finds its files");
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(place, sizeof place, "%s/%s/%s", exe, places[i], name);
        if (realpath(place, directory))
            return DPB_OK;
        size_t used = strlen(tried);
        snprintf(tried + used, sizeof tried - used, "%s%s", used > 0 ? ", " : "", place);
    }
    return dpb_fail(DPB_IO, "the directory %s of dpbench is missing; tried %s", name, tried);
}

dpb_status dpb_experiments_find(const char *pattern, glob_t *files)
{
    char directory[PATH_MAX], paths[PATH_MAX + NAME_MAX];
    DPB_TRY(dpb_shared_directory("conf", directory));
    snprintf(paths, sizeof paths, "%s/%s.ini", directory, pattern);
    const int found = glob(paths, 0, NULL, files);
    if (found == GLOB_NOSPACE)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    if (found != 0)
        return dpb_fail(DPB_USAGE, "there is no experiment '%s' in %s; `dpbench list` lists them",
                        pattern, directory);
    return DPB_OK;
}

dpb_status dpb_experiment_named(const char *name, char **path)
{
    glob_t files;
    if (!dpb_plugin_name_valid(name)) /* no pattern */
        return dpb_fail(DPB_USAGE, "'%s' is no experiment's name: names match [a-z0-9_]+", name);
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
