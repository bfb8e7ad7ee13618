"""The files of the families of calls, each imported at the first use of its name here: a program needs few of
them.
"""

from typing import TYPE_CHECKING

from sparklog.client import lazy_names

if TYPE_CHECKING:
    from sparklog.client.admin import acls as acls
    from sparklog.client.admin import cluster as cluster
    from sparklog.client.admin import configs as configs
    from sparklog.client.admin import credentials as credentials
    from sparklog.client.admin import groups as groups
    from sparklog.client.admin import quotas as quotas
    from sparklog.client.admin import storage as storage
    from sparklog.client.admin import transactions as transactions

__getattr__ = lazy_names(
    "sparklog.client.admin",
    {
        "sparklog.client.admin.acls": (),
        "sparklog.client.admin.cluster": (),
        "sparklog.client.admin.configs": (),
        "sparklog.client.admin.credentials": (),
        "sparklog.client.admin.groups": (),
        "sparklog.client.admin.quotas": (),
        "sparklog.client.admin.storage": (),
        "sparklog.client.admin.transactions": (),
    },
)
