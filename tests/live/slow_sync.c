/* Preloaded into a node: fsync and fdatasync do not return while the file that STALL_FILE names exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void stall(void) {
    const char *path = getenv("STALL_FILE");
    while (path != NULL && access(path, F_OK) == 0)
        usleep(10000);
}

int fsync(int descriptor) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    stall();
    return next(descriptor);
}

int fdatasync(int descriptor) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    stall();
    return next(descriptor);
}
