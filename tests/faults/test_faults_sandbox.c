/* A sandbox refuses a system call or hides /proc, for all ranks or for rank 1 alone.  Operations work in another way,
 * or init fails with one message that names the call and the rank.  A killed rank is noticed as fast as elsewhere. */
#include "procs.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SIZE = 3, LARGE = 1 << 18, SOON_S = PROCS_SOON_S };

struct sandbox {
    const char *name;
    uint32_t calls[2]; /* refused calls; 0: none */
    int error;
    bool without_proc;
    const char *names; /* the call that the error must name, if init cannot work in another way */
};

static bool refuse(uint32_t number, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool enter(const struct sandbox *sandbox)
{
    if (sandbox->without_proc &&
        (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
         mount("none", "/proc", "tmpfs", 0, NULL) != 0))
        return false;
    for (int i = 0; i < 2; i++)
        if (sandbox->calls[i] != 0 && !refuse(sandbox->calls[i], sandbox->error)) return false;
    return true;
}

static int use(int rank, int size)
{
    static float large[LARGE];
    float x = 1;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == (float)size);
    for (int i = 0; i < LARGE; i++) large[i] = (float)rank;
    EXPECT(tutti_all_reduce(tutti_view(large, LARGE), TUTTI_SUM, NULL) == TUTTI_OK);
    for (int i = 0; i < LARGE; i++) EXPECT(large[i] == (float)(size * (size - 1) / 2));
    for (int i = 0; i < LARGE; i++) large[i] = (float)i;
    if (rank == 0) EXPECT(tutti_send(tutti_view(large, LARGE), 1, NULL) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_recv(tutti_view(large, LARGE), 0, NULL) == TUTTI_OK && large[LARGE - 1] == LARGE - 1);
    return 0;
}

/* Checks that init fails: the rank in the sandbox names the call, and every other rank names that rank as well. */
static int expect_refusal(const struct sandbox *sandbox, bool inside, int status, int64_t begin)
{
    EXPECT_WITHIN(begin, 0, SOON_S);
    EXPECT(sandbox->names != NULL);
    EXPECT_ERROR(status, status, sandbox->names);
    if (!inside) EXPECT_ERROR(status, status, "rank 1: ");
    return 0;
}

static int rank_in(int rank, int size, const struct sandbox *sandbox, const char *shm, bool inside)
{
    setenv("TUTTI_SHM", shm, 1);
    if (inside) EXPECT(enter(sandbox));
    int64_t begin = monotonic_ns();
    int status = proc_init(20000);
    if (status != TUTTI_OK) return expect_refusal(sandbox, inside, status, begin);
    int result = use(rank, size);
    if (result != 0) return result;
    proc_barrier(size, 1);
    if (rank == size - 1) proc_wait_for_go(2); /* until it is killed */
    begin = monotonic_ns();
    float x = 1;
    status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL);
    EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, "rank 2");
    EXPECT_WITHIN(begin, 0, SOON_S);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

struct choice {
    const struct sandbox *sandbox;
    const char *shm;
    bool all;
};

static int rank_of_sandbox(int rank, int size, void *argument)
{
    const struct choice *choice = argument;
    return rank_in(rank, size, choice->sandbox, choice->shm, choice->all || rank == 1);
}

static void kill_last(struct procs *procs, void *argument)
{
    (void)argument;
    while (procs_reap(procs) && atomic_load(&procs->shared->step[SIZE - 1]) < 2 && monotonic_ns() < procs->deadline_ns)
        procs_sleep_ms(1);
    procs_signal(procs, SIZE - 1, SIGKILL);
}

static void run_in(const struct sandbox *sandbox)
{
    struct choice choices[] = {{sandbox, "1", true}, {sandbox, "1", false}, {sandbox, "0", true}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        fprintf(stderr, "%s, TUTTI_SHM=%s, %s\n", sandbox->name, choices[i].shm, choices[i].all ? "all" : "one rank");
        procs_run_with(SIZE, rank_of_sandbox, kill_last, &choices[i]);
    }
}

static void test_without_memfd(void **state)
{
    (void)state;
    run_in(&(struct sandbox){.name = "no memfd", .calls = {SYS_memfd_create}, .error = EPERM});
}

static void test_without_eventfd(void **state)
{
    (void)state;
    run_in(&(struct sandbox){.name = "no eventfd", .calls = {SYS_eventfd2}, .error = EPERM, .names = "eventfd"});
}

static void test_without_process_vm(void **state)
{
    (void)state;
    run_in(&(struct sandbox){
        .name = "no process_vm", .calls = {SYS_process_vm_readv, SYS_process_vm_writev}, .error = ENOSYS});
}

static void test_without_pidfd(void **state)
{
    (void)state;
    run_in(&(struct sandbox){.name = "no pidfd", .calls = {SYS_pidfd_open}, .error = ENOSYS});
}

static void test_without_proc(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    run_in(&(struct sandbox){.name = "no /proc", .without_proc = true});
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_memfd),      cmocka_unit_test(test_without_eventfd),
        cmocka_unit_test(test_without_process_vm), cmocka_unit_test(test_without_pidfd),
        cmocka_unit_test(test_without_proc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
