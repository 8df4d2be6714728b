/*
 * job.h - a running job, private to the launcher: its loop (launch.c), and its output (job.c): the
 * progress line, the ranks' warnings, the first cause of its end.
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
    pid_t pid;             /* another part's: from its page */
    bool remote;           /* of another part, which reports the members that follow */
    char state;            /* of its process, as in struct dpb_proc */
    int64_t heard_ns;      /* when its part last sent a frame */
    int64_t end_heard_ns;  /* when its end was reported; frames to the store may follow */
    uint32_t n_interrupts; /* signals to its part */
    bool running, killed /* by us */, bye, stuck, lost /* run.survive */;
    int wait_status;
    int64_t ended_ns, fault_ns;
    char fault[384];
    uint32_t n_warnings_shown;
    char late_in[32]; /* the phase in which stall.c named it late */
    uint32_t late_at; /* the last look that found it late */
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
    bool ending, child_ended; /* there may be a process to reap */
    uint64_t memory_kills;    /* dpb_memory_kills when it began */
    int interrupt;            /* the first signal's number */
    uint32_t n_interrupts;
    int64_t kill_at_ns, give_up_ns;
    struct stall_watch stalls;
    struct { /* the head's: the post that all parts must confirm */
        uint64_t at, value;
        uint32_t serial, n_missing;
    } confirm;
    /* The head's: its loop's last turn; the length of its last stop, and the end of that stop. */
    int64_t looked_ns, stopped_ns, woke_ns;
    bool was_given_up;      /* the others gave the head up during that stop and reported it */
    int64_t places_told_ns; /* the head's: when it last sent the others where the ranks are */
    struct {
        bool drawn;
        int64_t at_ns; /* of the last line */
    } progress;
};

struct dpb_status_page *job_page(const struct job_run *run, uint32_t rank); /* @borrowed */
/* The host and the process id of a rank; 0: not known yet. */
const char *job_host(const struct job_run *run, uint32_t rank);
int32_t job_pid(const struct job_run *run, uint32_t rank);
/* Whether a rank ended in order: exit 0 after its BYE to the store, or the exit code of an
 * interruption after a signal. Also true if the job continues without the rank. */
bool job_ended_well(const struct job_run *run, uint32_t rank);
/* Warns that a signal has ended this rank and the others train on. */
void job_say_lost(const struct job_run *run, uint32_t rank);
/* The outcome of a job whose processes are gone; prints the first cause of a failure. The outcome
 * owns the board afterwards. */
void job_conclude(const struct job_run *run, struct dpb_job_outcome *outcome);

/* New warnings, and the job's line: on a terminal twice a second, elsewhere twice a minute. */
void job_show(struct job_run *run, int64_t now_ns);
void job_show_end(struct job_run *run);
/* Call it before any other output to stderr. */
void job_erase_progress(struct job_run *run);

#endif
