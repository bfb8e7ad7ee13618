/* Has system calls on files fail as a broken disk would: preloaded before libc, told by the file that FAILING_CALLS names.
 *
 * Each line of that file is "CALL PART ERRNO": CALL fails with ERRNO where the path of its file contains PART. The file is read at each
 * call, so a test changes it while the process runs. `open` means the openings that may write.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *call, const char *path)
{
    const char *told = getenv("FAILING_CALLS");
    FILE *file = told == NULL ? NULL : fopen(told, "re");
    char name[32], part[256];
    int number, found = 0;
    if (file == NULL)
        return 0;
    while (!found && fscanf(file, "%31s %255s %d", name, part, &number) == 3)
        if (strcmp(name, call) == 0 && strstr(path, part) != NULL)
            found = number;
    fclose(file);
    errno = found;
    return found;
}

static int fails_at(const char *call, int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    return fails_at("pwrite", fd) ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return fails_at("pwrite", fd) ? -1 : REAL(pwrite)(fd, data, size, at); }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { return fails_at("read", fd) ? -1 : REAL(pread64)(fd, data, size, at); }
ssize_t pread(int fd, void *data, size_t size, off_t at) { return fails_at("read", fd) ? -1 : REAL(pread)(fd, data, size, at); }
ssize_t sendfile64(int out, int in, off64_t *at, size_t size) { return fails_at("read", in) ? -1 : REAL(sendfile64)(out, in, at, size); }
ssize_t sendfile(int out, int in, off_t *at, size_t size) { return fails_at("read", in) ? -1 : REAL(sendfile)(out, in, at, size); }
int fdatasync(int fd) { return fails_at("fsync", fd) ? -1 : REAL(fdatasync)(fd); }
int fsync(int fd) { return fails_at("fsync", fd) ? -1 : REAL(fsync)(fd); }
int ftruncate64(int fd, off64_t size) { return fails_at("ftruncate", fd) ? -1 : REAL(ftruncate64)(fd, size); }
int ftruncate(int fd, off_t size) { return fails_at("ftruncate", fd) ? -1 : REAL(ftruncate)(fd, size); }
int rename(const char *old, const char *new) { return fails("rename", old) ? -1 : REAL(rename)(old, new); }
int unlink(const char *path) { return fails("unlink", path) ? -1 : REAL(unlink)(path); }

#define OPEN(name)                                                        \
    int name(const char *path, int flags, ...)                            \
    {                                                                     \
        va_list more;                                                     \
        va_start(more, flags);                                            \
        mode_t mode = va_arg(more, mode_t);                               \
        va_end(more);                                                     \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && fails("open", path)) \
            return -1;                                                    \
        return REAL(name)(path, flags, mode);                             \
    }
OPEN(open)
OPEN(open64)
