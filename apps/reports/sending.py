"""stub"""


def address_faults(url):
    return []
