/* accuracy.c - see accuracy.h. */
#include "lib/accuracy.h"

#include <string.h>
#include <unistd.h>

#include "lib/test.h"
#include "lib/training.h"

static const double wanted = 0.89, deadline_s = 900.0;

static bool have_data(void)
{
    return access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) == 0;
}

static double accuracy_after(int epochs, const char *strategy)
{
    char directory[64];
    struct command command;
    temporary_directory(directory);
    dpbench(&command, deadline_s, "-c conf/lenet_shm.ini --json run.results=%s run.epochs=%d %s",
            directory, epochs, strategy);
    remove_directory(directory);
    double accuracy = json_number_at(command.json, "eval.0.accuracy");
    if (command.exit_code != 0 ||
        strcmp(json_text_at(command.json, "verification.after"), "pass") != 0)
        fail_msg("%s: exit code %d: %s", strategy, command.exit_code, command.err);
    print_message("%s: %.2f %% after %d epochs, %.0f s\n", strategy, 100 * accuracy, epochs,
                  command.seconds);
    return accuracy;
}

/* Two epochs do as a rule. */
void expect_lenet_learns(const char *strategy)
{
    if (!have_data() || !have_cpu_device()) {
        print_message("needs Debian's package dataset-fashion-mnist and the cpu device\n");
        skip();
    }
    double accuracy = accuracy_after(2, strategy);
    if (!(accuracy >= wanted))
        accuracy = accuracy_after(3, strategy);
    if (!(accuracy >= wanted))
        fail_msg("%s: LeNet reaches %.2f %% within 3 epochs, not %.0f %%", strategy, 100 * accuracy,
                 100 * wanted);
}
