/*
 * cmd_watch.c - `dpbench watch`: the jobs of this machine that other processes run, as their
 * launchers would show them. Their boards are found in /proc and read alone: a job does not notice,
 * and may end at any time.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cli.h"
#include "machine/proc.h"
#include "measure/journal.h"
#include "record/live.h"

enum { JOBS = 64, REFRESH_US = 500000 };

/* A job and its launcher, or the sweep that starts launchers one after the other. */
struct watched {
    pid_t pid;
    ino_t inode;             /* of the board */
    struct dpb_board *board; /* @owned; NULL: it is between two jobs */
};

struct watching {
    pid_t only; /* 0: any; else a launcher, or the sweep that starts it */
    struct watched jobs[JOBS];
    size_t n;
    size_t n_drawn; /* lines of the last picture */
};

/* ---- finding ------------------------------------------------------------------------------- */

/* The board that the process has open; -1: none that this user may see. */
static int find_board(pid_t pid)
{
    char directory[64], link[PATH_MAX], path[128];
    snprintf(directory, sizeof directory, "/proc/%d/fd", (int)pid);
    DIR *list = opendir(directory);
    int found = -1;
    for (const struct dirent *entry; list && found < 0 && (entry = readdir(list));) {
        const ssize_t n = readlinkat(dirfd(list), entry->d_name, link, sizeof link - 1);
        if (n < 0)
            continue;
        link[n] = '\0';
        snprintf(path, sizeof path, "%s/%.20s", directory, entry->d_name);
        if (dpb_begins_with(link, "/memfd:dpbench-board"))
            found = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (list)
        closedir(list);
    return found;
}

/* The sweep, search or rerun that has started the launcher; else the launcher itself. */
static pid_t owner_of(pid_t launcher)
{
    struct dpb_proc proc;
    char name[32];
    const bool owned = dpb_proc_read("", launcher, &proc) &&
                       dpb_proc_line(name, sizeof name, "/proc/%d/comm", (int)proc.parent) &&
                       dpb_begins_with(name, "dpbench-");
    return owned ? proc.parent : launcher;
}

static bool is_rank_of(struct dpb_board *board, pid_t pid)
{
    for (uint32_t rank = 0; rank < dpb_board_ranks(board); rank++)
        if (dpb_board_page(board, rank)->pid == pid)
            return true;
    return false;
}

static struct watched *place_of(struct watching *w, pid_t pid)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->jobs[i].pid == pid)
            return &w->jobs[i];
    if (w->n == JOBS)
        return NULL;
    w->jobs[w->n] = (struct watched){.pid = pid};
    return &w->jobs[w->n++];
}

/* The launcher's job has ended, and it may start another. */
static void forget_job(struct watching *w, pid_t pid)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->jobs[i].pid == pid) {
            dpb_board_destroy(w->jobs[i].board);
            w->jobs[i].board = NULL;
        }
}

/* Takes the process's job if it is the launcher of one, and one that makes a result. */
static void look_at(struct watching *w, pid_t pid)
{
    struct stat info;
    struct dpb_board *board = NULL;
    const int fd = find_board(pid);
    if (fd < 0) {
        forget_job(w, pid);
        return;
    }
    if (fstat(fd, &info) != 0) {
        close(fd);
        return;
    }
    for (size_t i = 0; i < w->n; i++) {
        if (w->jobs[i].board && w->jobs[i].inode == info.st_ino) {
            close(fd); /* known, or a rank's descriptor of the same */
            return;
        }
    }
    if (dpb_board_watch(fd, &board) != DPB_OK)
        return;
    struct watched *job = NULL;
    const struct dpb_board_about *about = dpb_board_about(board);
    if (about->label[0] != '\0' && about->record_bytes == sizeof(struct dpb_record) &&
        !is_rank_of(board, pid))
        job = place_of(w, owner_of(pid));
    if (!job) {
        dpb_board_destroy(board);
        return;
    }
    dpb_board_destroy(job->board);
    job->board = board;
    job->inode = info.st_ino;
}

static void look(struct watching *w)
{
    DIR *list = opendir("/proc");
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        int64_t pid;
        if (isdigit((unsigned char)entry->d_name[0]) &&
            dpb_parse_int(entry->d_name, &pid) == DPB_PARSED && pid != getpid() &&
            (w->only == 0 || w->only == pid || owner_of((pid_t)pid) == w->only))
            look_at(w, (pid_t)pid);
    }
    if (list)
        closedir(list);
}

static bool is_alive(pid_t pid)
{
    struct dpb_proc proc;
    return dpb_proc_read("", pid, &proc) && proc.state != 'Z'; /* Z: ended, but not reaped */
}

/* Those whose launcher has ended. */
static void drop_ended(struct watching *w)
{
    for (size_t i = 0; i < w->n;) {
        if (is_alive(w->jobs[i].pid)) {
            i++;
            continue;
        }
        dpb_board_destroy(w->jobs[i].board);
        w->jobs[i] = w->jobs[--w->n];
    }
}

/* ---- showing ------------------------------------------------------------------------------- */

/* On a terminal of so many columns and rows; 0: no terminal, nothing is left out. */
struct screen {
    size_t columns, rows;
};

static struct screen screen_of(void)
{
    struct winsize size;
    const char *kind = getenv("TERM");
    if ((kind && strcmp(kind, "dumb") == 0) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_col == 0)
        return (struct screen){0};
    return (struct screen){size.ws_col, size.ws_row};
}

/* A process of the user, or of any user where root watches, may have written any bytes there. */
static void put_line(struct watching *w, const struct screen *screen, const char *line)
{
    char text[4 * DPB_LIVE_LINE + 1];
    if (screen->rows > 0 && w->n_drawn + 1 >= screen->rows)
        return;
    dpb_escape(line, strlen(line), text, sizeof text);
    if (screen->columns > 0)
        printf("\033[K%.*s\n", (int)screen->columns - 1, text);
    else
        puts(text);
    w->n_drawn++;
}

static void show(struct watching *w, const struct screen *screen)
{
    char line[DPB_LIVE_LINE];
    const size_t columns = screen->columns > 0 ? screen->columns - 1 : sizeof line - 1;
    if (w->n_drawn > 0)
        printf("\033[%zuA\033[J", w->n_drawn);
    w->n_drawn = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (!w->jobs[i].board)
            continue;
        struct dpb_board *board = w->jobs[i].board;
        char numbered[DPB_LIVE_LINE + 32];
        const int n = snprintf(numbered, sizeof numbered, "%d  ", (int)w->jobs[i].pid);
        dpb_live_line(board, columns > (size_t)n ? columns - (size_t)n : 0, line, sizeof line);
        snprintf(numbered + n, sizeof numbered - (size_t)n, "%s", line);
        put_line(w, screen, numbered);
        for (uint32_t rank = 0; rank < dpb_board_ranks(board); rank++) {
            dpb_live_rank(board, rank, columns, line, sizeof line);
            put_line(w, screen, line);
        }
    }
    fflush(stdout);
}

/* ---- the command --------------------------------------------------------------------------- */

static dpb_status parse(const struct dpb_command *self, int argc, char **argv, pid_t *only)
{
    int64_t pid;
    if (argc > 2)
        return dpb_usage_error(self, "one process at a time: '%s' is a second", argv[2]);
    if (argc < 2)
        return DPB_OK;
    if (dpb_parse_int(argv[1], &pid) != DPB_PARSED || pid < 1 || pid > INT_MAX)
        return dpb_usage_error(self, "'%s' is no number of a process", argv[1]);
    *only = (pid_t)pid;
    return DPB_OK;
}

/* Until no launcher is left; where there is no terminal, once. */
static void follow(struct watching *w)
{
    do {
        const struct screen screen = screen_of();
        show(w, &screen);
        if (screen.columns == 0)
            return;
        usleep(REFRESH_US);
        drop_ended(w);
        look(w);
    } while (w->n > 0);
    puts("all jobs have ended");
}

static int command_watch(const struct dpb_command *self, int argc, char **argv)
{
    struct watching w = {0};
    dpb_status status = parse(self, argc, argv, &w.only);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    look(&w);
    if (w.n == 0 && w.only != 0)
        status = dpb_fail(DPB_FAILED,
                          "process %d runs no job of this version of dpbench now, or is not this "
                          "user's",
                          (int)w.only);
    else if (w.n == 0)
        status = dpb_fail(DPB_FAILED, "no job of this version of dpbench runs on this machine, as "
                                      "far as this user may see");
    else
        follow(&w);
    for (size_t i = 0; i < w.n; i++)
        dpb_board_destroy(w.jobs[i].board);
    return dpb_status_exit_code(status);
}

DPB_PROGRAM("watch", command_watch)
