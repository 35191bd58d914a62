select convert(int, coalesce(collationproperty('Latin1_General_100_BIN2_UTF8', 'CodePage'), 0)),
	d.compatibility_level, convert(int, serverproperty('EngineEdition')), d.is_read_committed_snapshot_on, case when schema_id('manifold_documents') is null then 0 else 1 end
from sys.databases as d where d.name = db_name();
