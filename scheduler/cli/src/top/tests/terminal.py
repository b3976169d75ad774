# Runs a command in a pseudo-terminal of 80 columns and 24 lines: its own standard streams are the keys and the screen. Ends with
# a line that says whether the terminal was in raw mode and is as it was, and the command's exit code.
import fcntl, os, pty, select, struct, sys, termios
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
before = termios.tcgetattr(slave)
child = os.fork()
if child == 0:
    os.setsid()
    for fd in (0, 1, 2): os.dup2(slave, fd)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.argv[2], sys.argv[2:])
with open(sys.argv[1] + ".new", "w") as file: file.write(str(child))
os.rename(sys.argv[1] + ".new", sys.argv[1])
inputs, code, raw = [0, master], None, False
while code is None:
    ready = select.select(inputs, [], [], 0.05)[0]
    raw = raw or termios.tcgetattr(slave) != before
    if master in ready: os.write(1, os.read(master, 65536))
    if 0 in ready:
        typed = os.read(0, 100)
        if typed: os.write(master, typed)
        else: inputs.remove(0)
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid: code = os.waitstatus_to_exitcode(status)
while select.select([master], [], [], 0.1)[0]: os.write(1, os.read(master, 65536))
same = termios.tcgetattr(slave) == before
os.write(1, ("\nterminal %s, exit %d\n" % ("never raw" if not raw else "restored" if same else "changed", code)).encode())
