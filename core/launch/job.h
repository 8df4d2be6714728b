/*
 * job.h - a running job, private to the launcher: its loop (launch.c), and what is said of it
 * (job.c): the progress line, the ranks' warnings, the first cause of its end.
 */
#ifndef DPB_CORE_LAUNCH_JOB_H
#define DPB_CORE_LAUNCH_JOB_H

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include "base/signals.h"
#include "launch/launch.h"
#include "launch/party.h"
#include "launch/stall.h"
#include "launch/store_server.h"

struct process {
    pid_t pid;             /* another part's: as its page says */
    bool remote;           /* of another part: what follows is what that one tells */
    char state;            /* of its process, as in struct dpb_proc */
    int64_t heard_ns;      /* when its part was heard last */
    int64_t end_heard_ns;  /* that it has ended; its last words to the store may be on their way */
    uint32_t n_interrupts; /* signals to its part */
    bool running, killed /* by us */, bye, stuck, lost /* run.survive */;
    int wait_status;
    int64_t ended_ns, fault_ns;
    char fault[384];
    uint32_t n_warnings_shown;
    char late_in[32]; /* the phase in which it was said to be late; stall.c */
    uint32_t late_at; /* the look that found it late last */
    struct stall_sign sign;
};

struct job_run {
    const struct dpb_job *job;
    uint32_t n_ranks, n_running;
    char host[64];
    struct dpb_board *board;
    struct dpb_store_server *server;
    struct process *processes;
    struct pollfd *fds;
    int signal_fd;
    struct dpb_signals signals;
    bool ending, child_ended; /* there may be a process to be reaped */
    uint64_t memory_kills;    /* dpb_memory_kills when it began */
    int interrupt;            /* the first signal's number */
    uint32_t n_interrupts;
    int64_t kill_at_ns, give_up_ns;
    struct stall_watch stalls;
    struct { /* the head's: the post that is to be confirmed by all parts */
        uint64_t at, value;
        uint32_t serial, n_missing;
    } confirm;
    /* The head's: when its loop came round last; its last stop: how long, and when that ended. */
    int64_t looked_ns, stopped_ns, woke_ns;
    bool was_given_up; /* the head, by the others during that stop, and they have said so */
    int64_t told_ns;   /* the head's: when it last told the others where the ranks are */
    struct {
        bool drawn;
        int64_t at_ns; /* of the last line */
    } progress;
};

struct dpb_status_page *job_page(const struct job_run *run, uint32_t rank); /* @borrowed */
/* Where and which process a rank is; 0: not known yet. */
const char *job_host(const struct job_run *run, uint32_t rank);
int32_t job_pid(const struct job_run *run, uint32_t rank);
/* Whether a rank that has ended did so as it should: exit 0 after its goodbye, or the exit code of
 * an interruption that was asked for. Or the job goes on without it. */
bool job_ended_well(const struct job_run *run, uint32_t rank);
/* Of a rank that a signal has ended: warns that the others train on. */
void job_say_lost(const struct job_run *run, uint32_t rank);
/* The outcome of a job whose processes are gone; prints the first cause of a failure. The board
 * goes over to the outcome. */
void job_conclude(const struct job_run *run, struct dpb_job_outcome *outcome);

/* New warnings, and the job's line: on a terminal twice a second, elsewhere twice a minute. */
void job_show(struct job_run *run, int64_t now_ns);
void job_show_end(struct job_run *run);
/* Before anything else is written to stderr. */
void job_erase_progress(struct job_run *run);

#endif
