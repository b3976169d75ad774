"""Runs LocalStack for Sendslot (SQS, for one test with CloudFormation): on a loopback port of its own, with a tick of its own.

    sendslot_localstack.py prepare CATALOG_DIR             once, after the installation
    sendslot_localstack.py serve CATALOG_DIR PORT_FILE TICK

PORT_FILE receives the port. TICK is in milliseconds, or `stock` for LocalStack's own.
"""

import gc
import os
import socket
import sys
import threading
import time


def claim_port(port_file):
    """Listens on a free loopback port and tells which, so that nobody can take it before LocalStack serves."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    listener.setblocking(False)
    port = listener.getsockname()[1]
    with open(port_file + ".new", "w") as file:
        file.write(str(port))
    os.rename(port_file + ".new", port_file)
    return listener, port


def serve_on(listener):
    """LocalStack gives twisted only a port, which would open it on every interface."""
    from twisted.internet import endpoints

    class ClaimedEndpoint:
        def __init__(self, reactor, *_args, **_kwargs):
            self.reactor = reactor

        def listen(self, factory):
            return self.reactor.adoptStreamPort(listener.fileno(), socket.AF_INET, factory)

    endpoints.TCP4ServerEndpoint = ClaimedEndpoint


def shorten_tick(period):
    """Delayed and timed-out messages become visible on this tick; LocalStack's own is 1 s, hard-coded."""
    from localstack.services.sqs import provider

    class ShortScheduler(provider.Scheduler):
        def schedule(self, func, **_kwargs):
            # From end to start: a long scan must not be followed by a burst of overdue ones.
            return super().schedule(func, period=period, fixed_rate=False)

    provider.Scheduler = ShortScheduler


def end_polls_of_lost_clients(slice_s=0.1):
    """Without this the long poll of a client that has gone goes on, and swallows up to ten messages."""
    from localstack.services.sqs.models import StandardQueue
    from rolo.gateway.wsgi import WsgiGateway
    from rolo.serving import twisted

    thread = threading.local()
    update, call, receive = twisted.update_wsgi_environment, WsgiGateway.__call__, StandardQueue.receive

    def update_and_keep_request(environ, request):
        update(environ, request)
        environ["sendslot.request"] = request

    def call_with_request(self, environ, start_response):
        thread.request = environ.get("sendslot.request")
        return call(self, environ, start_response)

    def receive_in_slices(self, num_messages=1, wait_time_seconds=None, visibility_timeout=None, **options):
        end = time.monotonic() + (wait_time_seconds or 0)
        while True:
            left = max(end - time.monotonic(), 0)
            result = receive(self, num_messages, min(left, slice_s), visibility_timeout, **options)
            lost = getattr(getattr(thread, "request", None), "_disconnected", False)
            if lost:
                # what came in the slice in which the client went is for others
                for handle in result.receipt_handles:
                    self.update_visibility_timeout(handle, 0)
            if result.successful or result.dead_letter_messages or left <= slice_s or lost:
                return result

    twisted.update_wsgi_environment = update_and_keep_request
    WsgiGateway.__call__ = call_with_request
    StandardQueue.receive = receive_in_slices


def delete_stacks_with_conditions():
    """Without this a stack stays for ever in which one resource that its condition left out names another."""
    from localstack.services.cloudformation.v2.provider import CloudformationProviderV2

    model = CloudformationProviderV2._setup_change_set_model.__func__

    def model_of_what_was_made(cls, change_set, before_template, after_template, *args, **kwargs):
        if before_template and not after_template:
            made = change_set.stack.resolved_resources
            resources = {name: it for name, it in before_template["Resources"].items() if name in made}
            before_template = {**before_template, "Resources": resources, "Outputs": {}}
        return model(cls, change_set, before_template, after_template, *args, **kwargs)

    CloudformationProviderV2._setup_change_set_model = classmethod(model_of_what_was_made)


def use_catalog(directory):
    """LocalStack looks here for its index of services before it builds one, which takes 2 s."""
    from localstack import config

    config.dirs.static_libs = directory


def prepare(directory):
    """Builds the index of services, and compiles on the way what a start imports."""
    from localstack import config

    os.makedirs(directory, exist_ok=True)
    config.dirs.static_libs = directory
    from localstack.aws import spec

    spec.main()

    import localstack.aws.app  # noqa: F401
    import localstack.runtime.main  # noqa: F401
    import localstack.runtime.server.twisted  # noqa: F401
    import localstack.services.sqs.provider  # noqa: F401


def serve(directory, port_file, tick):
    listener, port = claim_port(port_file)
    os.environ["GATEWAY_LISTEN"] = f"127.0.0.1:{port}"
    use_catalog(directory)
    serve_on(listener)
    end_polls_of_lost_clients()
    if "cloudformation" in os.environ["SERVICES"]:
        delete_stacks_with_conditions()
    if tick != "stock":
        shorten_tick(int(tick) / 1000)

    from localstack.runtime.main import main as run

    # Requests leave little garbage in cycles; the stock thresholds cost a fifth of the throughput. Messages that stay are looked at
    # in small parts: 50,000 objects at once are a pause of 60 ms.
    gc.set_threshold(5_000, 1_000, 100)
    run()


if __name__ == "__main__":
    {"prepare": prepare, "serve": serve}[sys.argv[1]](*sys.argv[2:])
